"""Names of the processes of a job. A derived name is made here and nowhere else.

A group of one process and the process have one name: replica-3. Of a group of several each member
has a name of its own: replica-3-0, replica-3-1.
"""

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class ProcessName:
    """What the name of a process means."""

    role: Role
    index: int
    """Of its group, in the role; the coordinator has 0."""
    partition: int | None = None
    """Of a replica of several processes; None: it is the only one of its group."""

    def __str__(self) -> str:
        return self.group if self.partition is None else f"{self.group}-{self.partition}"

    @property
    def group(self) -> str:
        """The name of its group."""
        if self.role is Role.COORDINATOR:
            return COORDINATOR
        return replica_name(self.index) if self.role is Role.REPLICA else shard_name(self.index)


def member_name(replica_index: int, partition: int, processes: int) -> str:
    """Return the name of one of the processes of a replica that has so many."""
    group = replica_name(replica_index)
    return group if processes == 1 else f"{group}-{_checked(partition)}"


def parse(name: str) -> ProcessName:
    """Return what a process name means. ValueError for other texts."""
    if name == COORDINATOR:
        return ProcessName(Role.COORDINATOR, 0)
    role, *numbers = name.split("-")
    if all(number.isdecimal() and str(int(number)) == number for number in numbers):
        if role in {Role.REPLICA, Role.SHARD} and len(numbers) == 1:
            return ProcessName(Role(role), int(numbers[0]))
        if role == Role.REPLICA and len(numbers) == 2:
            return ProcessName(Role.REPLICA, *map(int, numbers))
    message = (
        f"no process is called '{name}': expected {COORDINATOR}, shard-I, replica-I or "
        "replica-I-PARTITION"
    )
    raise ValueError(message)


def _checked(index: int) -> int:
    if index < 0:
        message = f"the index of a process counts from 0, got {index}"
        raise ValueError(message)
    return index
