"""A container image of one static program: the pods' sandbox, and small pods in tests."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Final

from cluster import commands

IMAGE: Final = "test.disttrain.dev/busybox:1"
PROGRAM: Final = Path("/bin/busybox")
COMMANDS: Final = (
    "cat",
    "echo",
    "env",
    "id",
    "ls",
    "nc",
    "nslookup",
    "printf",
    "ps",
    "sh",
    "sleep",
)
"""The names under which a test may call it; its wget, linked statically, crashes."""
EMPTY_FOLDERS: Final = ("tmp", "proc", "sys", "dev", "etc")
FOR_EVER: Final = "2147483647"
"""The longest sleep that this program knows, in seconds: 68 years."""


def write_archive(path: Path) -> None:
    """Write the image as a Docker archive; it is made by hand, as building needs a base image."""
    layer = _layer()
    config = _bytes(_config(layer))
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    files = {"layer.tar": layer, "config.json": config, "manifest.json": _bytes(manifest)}
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            _add(archive, name, content)


def _config(layer: bytes) -> dict[str, object]:
    settings = {
        "Cmd": ["/bin/sleep", FOR_EVER],
        "Env": ["PATH=/bin"],
        "User": "65534:65534",
    }
    layers = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}
    machine = {"architecture": _architecture(), "os": "linux"}
    return {**machine, "config": settings, "rootfs": layers}


def _layer() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as layer:
        for name in ("bin", *EMPTY_FOLDERS):
            folder = tarfile.TarInfo(name)
            folder.type = tarfile.DIRTYPE
            folder.mode = 0o1777 if name == "tmp" else 0o755
            layer.addfile(folder)
        _add(layer, "bin/busybox", PROGRAM.read_bytes(), mode=0o755)
        for name in COMMANDS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type = tarfile.SYMTYPE
            link.linkname = "busybox"
            layer.addfile(link)
    return content.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = mode
    archive.addfile(entry, io.BytesIO(content))


def _bytes(content: object) -> bytes:
    return json.dumps(content).encode()


def _architecture() -> str:
    """Return the machine's architecture in the words of images, as Debian has them."""
    return commands.run("dpkg", "--print-architecture").strip()
