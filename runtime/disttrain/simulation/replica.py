"""One simulated replica: production's loop and exchanges, whose steps take virtual time."""

from collections import deque
from functools import partial
from typing import Any, Protocol

from disttrain.coordinator.leases import permutation
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.protocol.fields import Lease, MemberId
from disttrain.job import defaults
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.replay.replica import Learner, Setting
from disttrain.replay.wires import VirtualTimeCancellation
from disttrain.replica import strategies
from disttrain.replica.connection import Connection, Sides
from disttrain.replica.pace import MeasuredPace
from disttrain.replica.pipeline import Loaded
from disttrain.replica.stepper import TrainingLoop
from disttrain.replica.work import Cutting, LostLeases, WorkItem
from disttrain.simulation.machines import StepTimes
from disttrain.task.loss import BatchLoss, LossContext
from disttrain.transport.header import Role
from disttrain.transport.virtual_time import VirtualTime

_FIRST_LOOK_SECONDS = 0.001
"""Whether the first parameters are there."""


class Work(Protocol):
    """What a run gives its replicas to do."""

    data: DataLedger
    time: VirtualTime
    replicas: int

    @property
    def setting(self) -> Setting: ...

    @property
    def is_over(self) -> bool:
        """Whether nobody is to begin another step."""
        ...

    def lease_for(self, member: MemberId) -> Lease | None:
        """What a replica computes next; None: there is nothing now."""
        ...

    @property
    def is_given_out(self) -> bool:
        """There will be no further lease."""
        ...


class SimulatedReplica:
    """It is the loop's source of batches too."""

    def __init__(self, work: Work, sides: Sides, index: int, times: StepTimes) -> None:
        self.dry = False
        self.member = MemberId(role=Role.REPLICA, index=index, incarnation=1)
        self.computing_seconds = 0.0
        self._work = work
        self._times = times
        setting, data = work.setting, work.data
        spec = setting.spec
        training = strategies.stepped(spec)
        self._learner = Learner(setting, training.outgoing_buffers(spec))
        cancellation = VirtualTimeCancellation(work.time)
        self.connection = Connection(self._learner.model, sides, cancellation)
        self._lost = LostLeases(frozenset)
        run = defaults.extent(spec, data.samples)
        self._stepper = training.stepper(
            self.connection, spec, run, partial(MeasuredPace, clock=cancellation.clock)
        )
        self._loop = TrainingLoop(self._stepper, self._loss, self, self._lost, setting.seed)
        indices = permutation.portions_of(
            setting.seed, data.samples, data.portion_size, in_order=bool(data.sources)
        )
        self._cutting = Cutting(batch_size=data.batch_size, portion_indices=indices)
        self._items: deque[WorkItem] = deque()
        self._computed: WorkItem | None = None
        """The latest, which is computed now."""

    @property
    def sender(self) -> SenderIncarnation:
        return SenderIncarnation(self.member.index, self.member.incarnation)

    @property
    def nbytes(self) -> int:
        """Pushed and fetched, without headers."""
        return self.connection.pushes.transfers.nbytes + self.connection.fetches.transfers.nbytes

    def run(self) -> None:
        """In a thread of virtual time, until the work is over."""
        wait = partial(self._work.time.wait, _FIRST_LOOK_SECONDS)
        self._stepper.begin(self.connection.first_fetch(wait, self._stepper.computes_on))
        self._loop.train_until(self._ends)

    def next(self, timeout: float) -> Loaded | None:
        work = self._work
        work.data.advance(self.member, self._stepper.progress(self._lost))
        if not self._items:
            lease = work.lease_for(self.member)
            if lease is None:
                self.dry = work.is_given_out
                work.time.wait(timeout)
                return None
            self._items.extend(self._cutting.items(lease))
        self._computed = self._items.popleft()
        return self._learner.batches[self._computed]

    def drop(self) -> None:
        """It ends when the work does."""

    def _loss(self, batch: Any, context: LossContext) -> BatchLoss:
        """As long as a step of so many samples computes."""
        assert self._computed is not None  # noqa: S101  The loop has asked for a batch.
        seconds = self._times.seconds(len(self._computed.indices))
        self.computing_seconds += seconds
        self._work.time.wait(seconds)
        return self._learner.loss(batch, context)

    def _ends(self) -> bool:
        is_done = self.dry and not self._work.data.held(self.member)
        return is_done or self._work.is_over
