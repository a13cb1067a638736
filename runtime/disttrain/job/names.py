"""Names of the processes of a job. A derived name is made here and nowhere else."""

from enum import StrEnum


class Role(StrEnum):
    """The kinds of processes of a job."""

    COORDINATOR = "coordinator"
    """Gives out work and decides the end."""
    SHARD = "shard"
    """Keeps a part of the parameters."""
    REPLICA = "replica"
    """Trains a copy of the model."""


COORDINATOR = "coordinator"
"""Name of the one coordinator of a job."""
LAUNCHER = "launcher"
"""Who starts the processes of a job on one machine. No role: there is none in a cluster."""


def replica_name(replica_index: int) -> str:
    """Return the name of a replica, counted from 0."""
    return f"{Role.REPLICA}-{_checked(replica_index)}"


def shard_name(shard_index: int) -> str:
    """Return the name of a shard, counted from 0."""
    return f"{Role.SHARD}-{_checked(shard_index)}"


def role_and_index(name: str) -> tuple[Role, int]:
    """Return what a process name means; the coordinator has index 0. ValueError for other texts."""
    if name == COORDINATOR:
        return Role.COORDINATOR, 0
    role, _, index = name.partition("-")
    if role in {Role.REPLICA, Role.SHARD} and index.isdecimal() and str(int(index)) == index:
        return Role(role), int(index)
    message = f"no process is called '{name}': expected {COORDINATOR}, shard-I or replica-I"
    raise ValueError(message)


def _checked(index: int) -> int:
    if index < 0:
        message = f"the index of a process counts from 0, got {index}"
        raise ValueError(message)
    return index
