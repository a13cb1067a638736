"""What becomes of the ConfigMap with a task's code: made, kept, written over or refused. Pure."""

from collections.abc import Sequence
from enum import Enum, auto

from disttrain.cluster import packing
from disttrain.cluster.errors import AlreadyThere
from disttrain.cluster.interface import Object

ENDED = ("Complete", "Failed")


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
    if packing.same_content(wanted, found):
        return Change.KEEP
    name = wanted["metadata"]["name"]
    if not packing.is_ours(found):
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
