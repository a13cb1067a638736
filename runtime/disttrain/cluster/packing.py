"""The files of a task as a ConfigMap, or why they do not fit in one. Pure; `code_folder` reads."""

import base64
import re
from collections.abc import Mapping
from typing import Final

from disttrain.cluster.errors import WrongInput
from disttrain.cluster.interface import Object

MOST_BYTES: Final = 2**20
"""What Kubernetes allows in a ConfigMap."""

BIGGEST_NAMED: Final = 5

LABELS: Final = {"app.kubernetes.io/managed-by": "disttrain-cli"}
"""On every ConfigMap that is made here; those of other people are never written over."""

_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")

REMEDY: Final = (
    "bake the code into an image instead (FROM the runtime image, COPY it to /task) and name it in "
    "spec.image"
)

Files = Mapping[str, bytes]
"""File names to contents."""


def config_map(name: str, files: Files) -> Object:
    texts, others = {}, {}
    for file, content in files.items():
        try:
            texts[file] = content.decode()
        except UnicodeDecodeError:
            others[file] = base64.b64encode(content).decode()
    parts = {"data": texts, "binaryData": others}
    metadata = {"name": name, "labels": dict(LABELS)}
    kept = {part: content for part, content in parts.items() if content}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **kept}


def require_fitting(sizes: Mapping[str, int], source: str) -> None:
    """Raise WrongInput unless files of these names and bytes fit; it names those in the way."""
    if not sizes:
        message = f"--code {source} holds no files that could be packed"
        raise WrongInput(message)
    refused = sorted(file for file in sizes if not _KEY.fullmatch(file) or file in {".", ".."})
    if refused:
        message = (
            f"--code {source}: a ConfigMap cannot hold a file named {refused[0]!r}; "
            "names have letters, digits, '-', '_' and '.' only"
        )
        raise WrongInput(message)
    if sum(sizes.values()) > MOST_BYTES:
        raise WrongInput(_too_much(sizes, source))


def same_content(first: Object, second: Object) -> bool:
    parts = ("data", "binaryData")
    return all((first.get(part) or {}) == (second.get(part) or {}) for part in parts)


def is_ours(config_map: Object) -> bool:
    """Whether a ConfigMap was made by `disttrain submit --code`."""
    labels = config_map["metadata"].get("labels") or {}
    return LABELS.items() <= labels.items()


def _too_much(sizes: Mapping[str, int], source: str) -> str:
    falling = sorted(sizes.items(), key=lambda each: (-each[1], each[0]))
    biggest = ", ".join(f"{file} ({size:,} bytes)" for file, size in falling[:BIGGEST_NAMED])
    return (
        f"--code {source} holds {sum(sizes.values()):,} bytes in {len(sizes)} files, and a "
        f"ConfigMap takes {MOST_BYTES:,}; the biggest: {biggest}. Move what the task does not "
        f"need out of the folder, or {REMEDY}"
    )
