"""A node's images and containers, through ctr: containerd's own command."""

import hashlib
import json
import shlex
import tarfile
from datetime import timedelta
from pathlib import Path

from cluster import commands, layout
from cluster.errors import CommandFailed

IMPORT_LIMIT = timedelta(minutes=10)
"""Layers are unpacked at the import: the gigabytes of PyTorch take more than a minute."""


def command(node: layout.Node, *arguments: str) -> list[str | Path]:
    """Return the command line of ctr for the images and containers of a node's pods."""
    return ["ctr", "--address", node.containerd_socket, "--namespace", "k8s.io", *arguments]


def import_archive(node: layout.Node, archive: Path) -> None:
    """Load an OCI or Docker archive, so that pods of the node can use its images."""
    # It collects the layers of the image that had the name before while it unpacks the new one.
    commands.run_patiently(*command(node, "images", "import", str(archive)), limit=IMPORT_LIMIT)


def import_output(node: layout.Node, shell_command: str) -> None:
    """Load the archive that a shell command writes, without a copy of it on the disk."""
    load = shlex.join(str(part) for part in command(node, "images", "import", "-"))
    script = f"set -o pipefail; {shell_command} | {load}"
    commands.run_patiently("bash", "-c", script, limit=IMPORT_LIMIT)


def copy_images(source: layout.Node, target: layout.Node) -> None:
    """Give a node every image of another node."""
    for image in set(images(source)) - set(images(target)):
        # Names alone: an id is only another name of an image that has one.
        if not _is_id(image):
            save = command(source, "images", "export", "-", image)
            import_output(target, shlex.join(str(part) for part in save))


def images(node: layout.Node) -> list[str]:
    """Return the names of the node's images."""
    return commands.run(*command(node, "images", "list", "--quiet")).split()


def configuration(node: layout.Node, image: str) -> str | None:
    """Return the digest of an image's configuration, which is its id; None if it is not there."""
    manifest = _targets(node).get(image)
    if manifest is None:
        return None
    content = json.loads(commands.run(*command(node, "content", "get", manifest)))
    digest: str = content["config"]["digest"]
    return digest


def configuration_in(archive: Path) -> str:
    """Return the same digest of the image in a Docker archive."""
    with tarfile.open(archive) as content:
        (image,) = json.loads(_member(content, "manifest.json"))
        return f"sha256:{hashlib.sha256(_member(content, image['Config'])).hexdigest()}"


def process_id(node: layout.Node, container_id: str) -> int:
    """Return the first process of a running container; raise CommandFailed if it does not run."""
    lines = commands.run(*command(node, "tasks", "list")).splitlines()
    running = {words[0]: words[1] for line in lines if (words := line.split())}
    if container_id not in running:
        message = f"container {container_id} does not run on {node.name}"
        raise CommandFailed(message)
    return int(running[container_id])


def forget_former(node: layout.Node) -> bool:
    """Remove a former cluster's containers, and images that lost their name; tell whether any."""
    containers = commands.run(*command(node, "containers", "list", "--quiet")).split()
    if containers:
        commands.run(*command(node, "containers", "delete", *containers))
    nameless = _nameless_images(node)
    if nameless:
        commands.run(*command(node, "images", "delete", *nameless), limit=IMPORT_LIMIT)
    return bool(containers or nameless)


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    with file:
        return file.read()


def _nameless_images(node: layout.Node) -> list[str]:
    """Return the ids of images that no name stands for: a newer image took the name."""
    targets = _targets(node)
    named = {target for reference, target in targets.items() if not _is_id(reference)}
    return [ref for ref, target in targets.items() if _is_id(ref) and target not in named]


def _targets(node: layout.Node) -> dict[str, str]:
    """Return the digest of each image's manifest."""
    _, *lines = commands.run(*command(node, "images", "list")).splitlines()
    return {words[0]: words[2] for line in lines if (words := line.split())}


def _is_id(reference: str) -> bool:
    return reference.startswith("sha256:")
