"""A group: the processes that live and die together under one incarnation. Its present state."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field

from disttrain.coordinator.phases import IncarnationState
from disttrain.coordinator.protocol.fields import MemberId, Partitions, Progress, Strict
from disttrain.job import identity
from disttrain.transport.header import Role


@dataclass(frozen=True, kw_only=True, slots=True)
class Process(Strict):
    """One member of a group, as it joined."""

    instance: str
    pid: int = 0
    address: str = ""
    metrics_address: str = ""
    place: str = ""
    """The only place where the process can be; empty: not known."""


@dataclass(kw_only=True, slots=True)
class Group(Strict):
    """The latest incarnation of a shard or a replica, nearly always a group of one process.

    The process with partition 0 speaks for the group: leases, progress and commands are its own.
    What is known of it lies beside the group's own fields, as in journals that know of no others.
    """

    role: Role
    index: int
    incarnation: int
    instance: str = ""
    """Of the first process, as all up to `address`; empty: it has not joined yet."""
    pid: int = 0
    state: IncarnationState = IncarnationState.LIVE
    """Of all its members: the end of one is the end of all."""
    address: str = ""
    metrics_address: str = ""
    place: str = ""
    """The only place where the process can be; empty: not known."""
    joined: float = 0.0
    """When the latest member did; seconds of the coordinator's clock."""
    reason: str = ""
    """Why it is dead."""
    progress: Progress = field(default_factory=Progress)
    """Replicas."""
    non_finite: int = 0
    """Replicas."""
    own_data: bool = False
    """A replica whose loop brings its own data."""
    drained: bool = False
    """A replica that will push nothing more."""
    left_warm_start: bool = False
    """A replica that has left the warm start behind and works for the batch method."""
    configured: bool = False
    """A shard that knows its ranges."""
    initialised: bool = False
    """A shard that has values."""
    partitions: Partitions = 1
    """How many processes it shall have."""
    followers: Annotated[dict[int, Process], Field(exclude_if=lambda found: not found)] = field(
        default_factory=dict
    )
    """The others that have joined, by partition, from 1."""

    @property
    def name(self) -> str:
        return self.member.group

    @property
    def member(self) -> MemberId:
        """Who speaks for it."""
        return MemberId(role=self.role, index=self.index, incarnation=self.incarnation)

    @property
    def live(self) -> bool:
        """Whether its incarnation goes on."""
        return self.state is IncarnationState.LIVE

    @property
    def is_guest(self) -> bool:
        """Whether somebody outside the job started it."""
        return self.own_data or identity.is_joiner(self.instance)

    @property
    def is_whole(self) -> bool:
        """Whether all its members have joined."""
        return bool(self.instance) and len(self.followers) == self.partitions - 1

    @property
    def takes_part(self) -> bool:
        """Whether it can be given work."""
        return self.live and self.is_whole

    @property
    def has_values(self) -> bool:
        """Replicas make theirs themselves, before they do anything else."""
        return self.initialised or self.role is Role.REPLICA

    @property
    def processes(self) -> dict[int, Process]:
        """All that have joined, by partition."""
        first = Process(
            instance=self.instance,
            pid=self.pid,
            address=self.address,
            metrics_address=self.metrics_address,
            place=self.place,
        )
        return ({0: first} if self.instance else {}) | self.followers

    @property
    def instances(self) -> tuple[str, ...]:
        """Of all that have joined, in the order of partitions."""
        return tuple(process.instance for _, process in sorted(self.processes.items()))

    @property
    def members(self) -> Iterator[MemberId]:
        """All that have joined, in the order of partitions."""
        if self.partitions == 1:
            return iter((self.member,))
        return (replace(self.member, partition=partition) for partition in sorted(self.processes))

    def member_of(self, instance: str) -> MemberId | None:
        if self.instance == instance:
            return self.member
        for partition, process in self.followers.items():
            if process.instance == instance:
                return replace(self.member, partition=partition)
        return None

    def has_joined(self, member: MemberId) -> bool:
        is_there = member.partition in self.followers if member.partition else bool(self.instance)
        return is_there and member.incarnation == self.incarnation

    def is_process(self, partition: int, pid: int) -> bool:
        process = self.processes.get(partition)
        return process is not None and process.pid == pid

    def has_room_for(self, partition: int, partitions: int) -> bool:
        """Whether a process of a group of so many can join this incarnation."""
        free = partition not in self.followers if partition else not self.instance
        return self.live and free and partitions == self.partitions

    def process_name(self, partition: int) -> str:
        """The name of one of its processes, as whoever starts it has it."""
        return replace(self.member, partition=partition).process_name(self.partitions)

    def add(self, partition: int, process: Process) -> None:
        if partition:
            self.followers[partition] = process
            return
        self.instance, self.pid, self.place = process.instance, process.pid, process.place
        self.address, self.metrics_address = process.address, process.metrics_address
