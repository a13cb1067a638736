"""One simulated replica: production's loop and exchanges, whose steps take virtual time."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from torch import Tensor

from disttrain.coordinator.leases import permutation
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.protocol.fields import Lease, MemberId, Position
from disttrain.job import defaults
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.replay.replica import Learner, Setting
from disttrain.replay.wires import VirtualTimeCancellation
from disttrain.replica import accrual
from disttrain.replica.connection import Connection, Sides
from disttrain.replica.downpour import Downpour, TrainingLoop
from disttrain.replica.pace import MeasuredPace
from disttrain.replica.pipeline import Loaded
from disttrain.replica.work import Cutting, LostLeases, WorkItem
from disttrain.simulation.machines import StepTimes
from disttrain.task.loss import BatchLoss
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
        manifest = setting.spec.strategy.only_downpour
        self._learner = Learner(setting, accrual.gradient_buffers(manifest))
        cancellation = VirtualTimeCancellation(work.time)
        self.connection = Connection(self._learner.model, sides, cancellation)
        self._lost = LostLeases(frozenset)
        pace = MeasuredPace(work.replicas, manifest.fetch_every, clock=cancellation.now)
        run = defaults.extent(setting.spec, data.samples)
        self._downpour = _TakesTime(self.connection, manifest, pace=pace, run=run)
        self._downpour.compute = self._compute
        self._loop = TrainingLoop(
            self._downpour, self._learner.loss, self, self._lost, setting.seed
        )
        indices = partial(
            permutation.portion_indices, setting.seed, data.samples, data.portion_size
        )
        self._cutting = Cutting(batch_size=data.batch_size, portion_indices=indices)
        self._items: deque[WorkItem] = deque()

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
        self._downpour.begin(self.connection.first_fetch(wait))
        self._loop.train_until(self._ends)

    def next(self, timeout: float) -> Loaded | None:
        work = self._work
        work.data.advance(self.member, self._downpour.progress(self._lost))
        if not self._items:
            lease = work.lease_for(self.member)
            if lease is None:
                self.dry = work.is_given_out
                work.time.wait(timeout)
                return None
            self._items.extend(self._cutting.items(lease))
        return self._learner.batches[self._items.popleft()]

    def drop(self) -> None:
        """It ends when the work does."""

    def _compute(self, samples: int) -> None:
        seconds = self._times.seconds(samples)
        self.computing_seconds += seconds
        self._work.time.wait(seconds)

    def _ends(self) -> bool:
        is_done = self.dry and not self._work.data.held(self.member)
        return is_done or self._work.is_over


class _TakesTime(Downpour):
    compute: Callable[[int], None]
    """Waits as long as a step of so many samples computes."""

    def accrue(
        self, gradient: Tensor, loss: BatchLoss | None, samples: int, position: Position
    ) -> float:
        self.compute(samples)
        return super().accrue(gradient, loss, samples, position)
