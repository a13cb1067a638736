"""containerd for one node: its configuration, its start, and the import of images."""

import json
import shlex
from datetime import timedelta
from pathlib import Path

from cluster import commands, layout, network
from cluster.control_plane import wait_for
from cluster.errors import CommandFailed
from cluster.processes import Process

OPEN_FILES = 10_000
"""A limit that every machine lets us set: raising the hard limit needs CAP_SYS_RESOURCE."""
BRIDGE_PLUGINS = "/usr/lib/cni"
IMPORT_LIMIT = timedelta(minutes=10)
"""Layers are unpacked at the import: the gigabytes of PyTorch take more than a minute."""
PODS_FIRST, PODS_LAST = 10, 250
"""The pods of node N get the addresses 10.244.N.10 to 10.244.N.250."""

CONFIG = """
version = 2
root = "{images}"
state = "{folder}/containerd-state"
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = "{socket}"
[ttrpc]
  address = "{socket}.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{plugins}"
  conf_dir = "{folder}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = "{folder}/base-runtime-spec.json"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
  Root = "{folder}/runc"
"""


def start(node: layout.Node, sandbox_image: str) -> None:
    """Start the node's containerd; returns when it answers. The sandbox image is not there yet."""
    node.folder.mkdir(parents=True, exist_ok=True)
    (node.folder / "cni").mkdir(exist_ok=True)
    (node.folder / "cni" / "10-bridge.conflist").write_text(json.dumps(_pod_network(node)))
    (node.folder / "base-runtime-spec.json").write_text(json.dumps(_base_spec()))
    config = node.folder / "containerd.toml"
    paths = {"folder": node.folder, "socket": node.containerd_socket, "plugins": BRIDGE_PLUGINS}
    config.write_text(CONFIG.format(sandbox=sandbox_image, images=node.images, **paths))

    process = _start(node, config)
    if _forget_former(node):
        # What it has already read of the former cluster, it would tell the kubelet.
        process.stop()
        _start(node, config)


def _start(node: layout.Node, config: Path) -> Process:
    process = Process.start(name(node), network.inside("containerd", "--config", config))
    wait_for(name(node), lambda: commands.succeeds(*_ctr(node, "version")))
    return process


def _forget_former(node: layout.Node) -> bool:
    """Remove a former cluster's containers, and images that lost their name; tell whether any."""
    containers = commands.run(*_ctr(node, "containers", "list", "--quiet")).split()
    if containers:
        commands.run(*_ctr(node, "containers", "delete", *containers))
    nameless = _nameless_images(node)
    if nameless:
        commands.run(*_ctr(node, "images", "delete", *nameless), limit=IMPORT_LIMIT)
    return bool(containers or nameless)


def _nameless_images(node: layout.Node) -> list[str]:
    """Return the ids of images that no name stands for: a newer image took the name."""
    rows = [line.split() for line in commands.run(*_ctr(node, "images", "list")).splitlines()[1:]]
    targets = {row[0]: row[2] for row in rows}
    named = {target for reference, target in targets.items() if not _is_id(reference)}
    return [ref for ref, target in targets.items() if _is_id(ref) and target not in named]


def _is_id(reference: str) -> bool:
    return reference.startswith("sha256:")


def name(node: layout.Node) -> str:
    """Return the name of the component."""
    return f"containerd-{node.name}"


def import_archive(node: layout.Node, archive: Path) -> None:
    """Load an OCI or Docker archive, so that pods of the node can use its images."""
    commands.run(*_ctr(node, "images", "import", str(archive)), limit=IMPORT_LIMIT)


def import_output(node: layout.Node, shell_command: str) -> None:
    """Load the archive that a shell command writes, without a copy of it on the disk."""
    load = shlex.join(str(part) for part in _ctr(node, "images", "import", "-"))
    script = f"set -o pipefail; {shell_command} | {load}"
    commands.run("bash", "-c", script, limit=IMPORT_LIMIT)


def copy_images(source: layout.Node, target: layout.Node) -> None:
    """Give a node every image of another node."""
    for image in set(images(source)) - set(images(target)):
        # Names alone: an id is only another name of an image that has one.
        if not _is_id(image):
            save = _ctr(source, "images", "export", "-", image)
            import_output(target, shlex.join(str(part) for part in save))


def images(node: layout.Node) -> list[str]:
    """Return the names of the node's images."""
    return commands.run(*_ctr(node, "images", "list", "--quiet")).split()


def process_id(node: layout.Node, container_id: str) -> int:
    """Return the first process of a running container; raise CommandFailed if it does not run."""
    lines = commands.run(*_ctr(node, "tasks", "list")).splitlines()
    running = {words[0]: words[1] for line in lines if (words := line.split())}
    if container_id not in running:
        message = f"container {container_id} does not run on {node.name}"
        raise CommandFailed(message)
    return int(running[container_id])


def _ctr(node: layout.Node, *arguments: str) -> list[str | Path]:
    return ["ctr", "--address", node.containerd_socket, "--namespace", "k8s.io", *arguments]


def _base_spec() -> dict[str, object]:
    spec: dict[str, object] = json.loads(commands.run("ctr", "oci", "spec"))
    process = spec["process"]
    assert isinstance(process, dict), "ctr oci spec prints an OCI runtime specification"
    process["rlimits"] = [{"type": "RLIMIT_NOFILE", "hard": OPEN_FILES, "soft": OPEN_FILES}]
    return spec


def _pod_network(node: layout.Node) -> dict[str, object]:
    addresses = {
        "subnet": layout.POD_NETWORK,
        "rangeStart": f"10.244.{node.number}.{PODS_FIRST}",
        "rangeEnd": f"10.244.{node.number}.{PODS_LAST}",
        "gateway": layout.FIRST_NODE,
    }
    assignment = {
        "type": "host-local",
        "dataDir": str(node.folder / "addresses"),
        "ranges": [[addresses]],
    }
    bridge = {
        "type": "bridge",
        "bridge": network.BRIDGE,
        "isDefaultGateway": True,
        # A pod reaches itself through its own service's address.
        "hairpinMode": True,
        "ipam": assignment,
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": layout.NAME, "plugins": [bridge, ports]}
