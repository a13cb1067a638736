"""The ConfigMap with a task's code: its content, and whether it is made, kept or replaced. Pure."""

import base64
import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final

from disttrain.cluster.errors import AlreadyThere, WrongInput
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
ENDED = ("Complete", "Failed")


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


class Change(Enum):
    """What is to be done with it."""

    CREATE = auto()
    """There is none of this name."""
    KEEP = auto()
    """It holds these very files."""
    REPLACE = auto()
    """It was made here, and no job that has not ended uses it."""


def decide(wanted: Object, found: Object | None, jobs: Sequence[Object]) -> Change:
    """Compare with the one that is there, and the jobs of its namespace.

    Raises AlreadyThere when it has other files and is not ours, or in use: a pod of a running job
    that starts again would find other code than its fellows.
    """
    if found is None:
        return Change.CREATE
    if same_content(wanted, found):
        return Change.KEEP
    name = wanted["metadata"]["name"]
    if not is_ours(found):
        message = (
            f"configmap/{name} is there with other files and was not made by `disttrain submit`; "
            f"delete it, or choose another name with --set spec.task.source.configMap=NAME"
        )
        raise AlreadyThere(message)
    users = [job["metadata"]["name"] for job in jobs if _uses(job, name)]
    if users:
        message = (
            f"configmap/{name} has other code, and job {users[0]} still runs with it; choose "
            f"another name with --set spec.task.source.configMap=NAME, or delete the job first"
        )
        raise AlreadyThere(message)
    return Change.REPLACE


def owned(config_map: Object, job: Object) -> Object:
    """A patch that makes a job an owner of the ConfigMap, so that it goes with its last job."""
    metadata = job["metadata"]
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    others = config_map["metadata"].get("ownerReferences") or []
    kept = [each for each in others if each["uid"] != owner["uid"]]
    return {"metadata": {"ownerReferences": [*kept, owner]}}


def copied(config_map: Object, job: Object) -> Object:
    """The same files in a new ConfigMap, of which the job is the only owner."""
    metadata = {name: config_map["metadata"][name] for name in ("name", "labels")}
    new = {**config_map, "metadata": metadata}
    return {**new, "metadata": {**metadata, **owned(new, job)["metadata"]}}


def _uses(job: Object, name: str) -> bool:
    source = job["spec"]["task"].get("source") or {}
    ended = (job.get("status") or {}).get("phase") in ENDED
    return source.get("configMap") == name and not ended
