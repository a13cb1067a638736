"""How a process that computes gradients becomes a member of a job."""

import os
from collections.abc import Callable
from concurrent.futures import wait
from typing import NamedTuple

import torch
from torch import nn

from disttrain.coordinator.errors import NotJoined
from disttrain.coordinator.protocol import leave_notices
from disttrain.coordinator.protocol.client import CoordinatorClient
from disttrain.coordinator.protocol.commands import Done, End
from disttrain.coordinator.protocol.fields import MemberId, Progress
from disttrain.coordinator.protocol.messages import Join, Joined, Leave
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.job import defaults, names
from disttrain.job.spec import Audit
from disttrain.launch.config import LaunchConfig, Supervisor
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.run_folder import RunFolder
from disttrain.parameter_server.client import ClientConfig, FetchClient, PushClient
from disttrain.parameter_server.conversation import Identity
from disttrain.parameter_server.messages import Side
from disttrain.replica import ledger
from disttrain.replica.agreement import ALONE, Agreement
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.connection import Connection, Sides
from disttrain.replica.errors import TooManyShards
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.ledger import Ledger, LedgerOfAnswers
from disttrain.replica.model_tensors import OwnPart
from disttrain.transport import descriptors, malloc
from disttrain.transport.factory import open_transport
from disttrain.transport.header import Role
from disttrain.transport.interface import Memory

_FLUSH_SECONDS = 2.0
_HEARD_SECONDS = 5.0
"""The coordinator has so long to answer a leave notice; then a file tells its next incarnation."""
LEAVE_SECONDS = {Supervisor.LAUNCHER: 10.0, Supervisor.NODE: 60.0}
"""How long a process that was told to leave waits for answers to the last pushes of its replica: on
a cluster, the shard that owes one may be on its way to another node."""


class Trained(NamedTuple):
    """What a process trains."""

    model: nn.Module
    device: torch.device
    part: OwnPart | None = None
    """As in `FlatModel`."""
    agreement: Agreement = ALONE
    """With the other processes of the replica, each of which trains a part."""


class Membership:
    """The way to the coordinator, and from it to the shards. Close it last."""

    def __init__(self, config: LaunchConfig) -> None:
        self.config = config
        self.cancellation = Cancellation()
        self._spec = spec = config.job.spec
        self.leave_notices = leave_notices.open_notices(config)
        """Where to write down what a coordinator that is away cannot be told."""
        self._transport = open_transport(config.transport_config)
        self._memory: Memory | None = None
        self.connection: Connection | None = None
        """To the shards, once a strategy has wanted one."""
        self.coordinator = CoordinatorClient(
            lambda: self._transport.connect(config.coordinator_address),
            Role.REPLICA,
            spec.coordinator.heartbeat_seconds,
            # The shards may have ended before this process: they answer none of its waits.
            on_end=self.cancellation.cancel,
        )

    def introduction(self, metrics_address: str | None = None) -> Join:
        """What this process says of itself; who brings a model or data adds what is known of it."""
        return Join(
            role=Role.REPLICA,
            index=self.config.index,
            partition=self.config.partition,
            partitions=self.config.processes,
            place=self.config.place,
            instance=self.config.new_instance(),
            pid=os.getpid(),
            metrics_address=metrics_address,
        )

    def join(
        self,
        join: Join,
        report: Callable[[], ReplicaReport],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Joined:
        """Become a member; `report` is called for each heartbeat, by another thread.

        `meanwhile` is called every few seconds of waiting; what it raises ends that. Raises
        NotJoined, and TimeoutError without a coordinator.
        """
        return self.coordinator.join(join, report, self.config.join_seconds, meanwhile)

    def connect(
        self,
        joined: Joined,
        trained: Trained,
        outgoing_buffers: int,
        log: Ledger = ledger.SILENT,
    ) -> Connection:
        """Put the model into flat vectors and start the threads that push and fetch them.

        Once: later stages of a job work with the same connection.
        """
        if self.connection is None:
            flat = self.flat_model(joined, trained, outgoing_buffers)
            sides = self._clients(joined, trained.agreement)
            self.connection = Connection(flat, sides, self.cancellation, log)
        return self.connection

    def flat_model(self, joined: Joined, trained: Trained, outgoing_buffers: int) -> FlatModel:
        """The model in flat vectors; once."""
        own = names.member_name(joined.member.index, self.config.partition, self.config.processes)
        self._memory = self._transport.memory(f"{own}-i{joined.member.incarnation}")
        return FlatModel(
            trained.model,
            self._memory,
            trained.device,
            outgoing_buffers=outgoing_buffers,
            formats=defaults.formats(self._spec),
            factors=()
            if joined.placement is None
            else joined.placement.factors_in(joined.member.partition),
            frozen=self._spec.task.frozen,
            part=trained.part,
        )

    def upload(self, shards: tuple[int, ...]) -> None:
        assert self.connection is not None  # noqa: S101  Its strategy has shards.
        self.connection.upload(shards)

    def open_ledger(self, joined: Joined) -> Ledger:
        audit = defaults.audit(self._spec)
        if audit is Audit.OFF:
            return ledger.SILENT
        folder = RunFolder(self.config.run_folder).ledger
        member = joined.member
        path = ledger.path_of(folder, member.index, member.incarnation, member.partition)
        kind = LedgerOfAnswers if member.partition else Ledger
        return kind(path, records_steps=self._spec.record, folds=audit is Audit.SUMMARY)

    def _clients(self, joined: Joined, agreement: Agreement) -> Sides:
        placement = joined.placement
        if placement is None:
            message = "the coordinator took in this replica's model without a placement"
            raise NotJoined(message)
        own = placement.holders_of(joined.member.partition)
        check_reach(len(own), descriptors.raise_limit())
        # The memory in which the task made its parameters is free now, and as large as they are.
        malloc.trim()
        client = ClientConfig(
            transport=self._transport,
            identity=Identity(index=joined.member.index, incarnation=joined.member.incarnation),
            directory=lambda: self.coordinator.shards,
            placement=placement,
            partition=joined.member.partition,
        )
        return Sides(push=PushClient(client), fetch=FetchClient(client), agreement=agreement)

    def leave(self, member: MemberId, progress: Progress | None, reason: str = "SIGTERM") -> None:
        """Say that this process ends by its own will. None: the shards tell how far it came."""
        leave = Leave(member=member, reason=reason, progress=progress)
        answer = self.coordinator.request(leave)
        if wait([answer], _HEARD_SECONDS).not_done:
            self.leave_notices.write(leave)

    def told_to_end(self) -> ExitCode | None:
        """How to end by what the coordinator has told; None: it has told no end.

        What else it has told is over with this process.
        """
        code = None
        while not self.coordinator.commands.empty():
            numbered = self.coordinator.commands.get()
            if isinstance(numbered.order, End):
                self.coordinator.answer(numbered, Done())
                code = ExitCode.COMPLETE if numbered.id else ExitCode.RESTART
        return code

    def close(self) -> None:
        """End the connections, that to the coordinator when it has answered everything.

        The model's memory is given back once nothing refers to it.
        """
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        self.coordinator.flush(_FLUSH_SECONDS)
        self.coordinator.close()
        self._transport.close()
        if self._memory is not None:
            self._memory.close()


def check_reach(shards: int, descriptors_allowed: int) -> None:
    """Whether this process can have its connections to all shards. Raises TooManyShards."""
    per_shard = len(Side) * descriptors.PER_CONNECTION
    needed = shards * per_shard + descriptors.ASIDE
    if needed <= descriptors_allowed:
        return
    most = max(0, (descriptors_allowed - descriptors.ASIDE) // per_shard)
    message = (
        f"spec.parameterServer.shards: {shards} shards need {needed} descriptors in each replica, "
        f"and this process may open {descriptors_allowed}; raise its hard limit (`ulimit -Hn`, "
        f"LimitNOFILE of the container runtime), or take at most {most} shards"
    )
    raise TooManyShards(message)
