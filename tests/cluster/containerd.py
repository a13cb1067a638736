"""containerd for one node: its configuration and its start."""

import json
from pathlib import Path

from cluster import commands, ctr, layout, network
from cluster.control_plane import wait_for
from cluster.processes import Process

OPEN_FILES = 10_000
"""A limit that every machine lets us set: raising the hard limit needs CAP_SYS_RESOURCE."""
BRIDGE_PLUGINS = "/usr/lib/cni"
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
    if ctr.forget_former(node):
        # What it has already read of the former cluster, it would tell the kubelet.
        process.stop()
        _start(node, config)


def _start(node: layout.Node, config: Path) -> Process:
    process = Process.start(name(node), network.inside("containerd", "--config", config))
    wait_for(name(node), lambda: commands.succeeds(*ctr.command(node, "version")))
    return process


def name(node: layout.Node) -> str:
    """Return the name of the component."""
    return f"containerd-{node.name}"


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
