"""What a pod of a job is, as its object says. Pure."""

import re
from dataclasses import dataclass
from typing import Final

from disttrain.cluster.interface import Object
from disttrain.job.cluster_labels import COMPONENT
from disttrain.job.cluster_names import CONTAINER

ROLES: Final = ("coordinator", "shard", "replica")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pod:
    """One pod, by its container with the training process."""

    name: str
    role: str
    """coordinator, shard or replica."""
    state: str
    """What kubectl shows: Running, Pending, CrashLoopBackOff, Completed, Terminating."""
    is_ready: bool
    is_running: bool
    """Whether its process runs just now."""
    restarts: int
    node: str
    created: str


def read(pod: Object) -> Pod:
    metadata, status = pod["metadata"], pod.get("status") or {}
    own = container(status)
    return Pod(
        name=metadata["name"],
        role=str((metadata.get("labels") or {}).get(COMPONENT, "")),
        state=_state(metadata, status, own),
        is_ready=bool(own.get("ready")),
        is_running="running" in (own.get("state") or {}),
        restarts=int(own.get("restartCount") or 0),
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        created=str(metadata.get("creationTimestamp") or ""),
    )


def container(status: Object, name: str = CONTAINER) -> Object:
    """What a pod's status says of a container, the training process; empty before it is there."""
    found: list[Object] = status.get("containerStatuses") or []
    return next((each for each in found if each.get("name") == name), {})


def in_order(pods: list[Object]) -> list[Pod]:
    """By role; processes of one replica, of several, beside each other in the order of theirs."""
    found = map(read, pods)
    return sorted(found, key=lambda pod: (_rank(pod.role), _parts(pod.name)))


def _parts(name: str) -> list[tuple[int, str]]:
    """The parts of a name, numbers by their size: the tenth comes after the ninth."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split("([0-9]+)", name)
    ]


def _rank(role: str) -> int:
    return ROLES.index(role) if role in ROLES else len(ROLES)


def _state(metadata: Object, status: Object, own: Object) -> str:
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    state = own.get("state") or {}
    for kind in ("waiting", "terminated"):
        reason = (state.get(kind) or {}).get("reason")
        if reason:
            return str(reason)
    return str(status.get("reason") or status.get("phase") or "Unknown")
