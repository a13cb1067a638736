"""Shards and replicas that begin as those of Downpour, and go over to a batch method."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from disttrain.coordinator.protocol import messages, orders
from disttrain.coordinator.protocol.messages import GroupLease
from disttrain.parameter_server.deliveries import ChunkName, Decision
from disttrain.sandblaster.batch.groups import Worker
from disttrain.sandblaster.batch.shard import BatchShard
from disttrain.sandblaster.batch.staging import Chunk
from disttrain.sandblaster.names import TRIAL
from simulation.clockwork import Process
from simulation.sandblaster import group_work, problem
from simulation.warm_start.modelled.sim_replica import RESEND_SECONDS, SimReplica
from simulation.warm_start.modelled.sim_shard import CHUNKS, SimShard
from simulation.warm_start.modelled.world import Push, Snapshot

_ASK_SECONDS = 0.1
_MOST_HELD = 2


@dataclass(slots=True)
class WarmSnapshot(Snapshot):
    """With the vectors of the method, if it has begun."""

    batch: BatchShard | None = None


def reached(applied: list[Push], shard: int) -> problem.Point:
    """Parameters of a shard after these updates; each sample of a lease moves them otherwise."""
    point = np.array(problem.START[problem.RANGES[shard]])
    for push in applied:
        for lease, first, end in push.ranges:
            for place in range(first, end):
                point -= (0.01 + lease % 5 * 0.003 + place % 3 * 0.007) * (point + 0.1)
    return point


class WarmShard(SimShard):
    """Takes pushes until it is told to return to the end of the warm start."""

    batch: BatchShard | None = None

    def chunk(
        self, push: Push, chunk: int, process: Process, done: Callable[[Decision], None]
    ) -> None:
        """After the warm start nothing is applied, and a living replica has nothing new."""
        if self.batch is None:
            super().chunk(push, chunk, process, done)
            return
        decision = self.table.decide(
            push.sender, push.incarnation, ChunkName(push.sequence, chunk, CHUNKS)
        )
        if decision is Decision.APPLY:
            self.world.violations.append(f"{push} comes to shard {self.index} after the warm start")
        else:
            self.world.clock.send(process, lambda: done(decision))

    def snapshot(self) -> Snapshot:
        found = super().snapshot()
        batch = None if self.batch is None else group_work.copied(self.batch)
        return WarmSnapshot(found.delivered, found.applied, found.chunks, batch)

    def take(self, snapshot: Snapshot) -> None:
        super().take(snapshot)
        assert isinstance(snapshot, WarmSnapshot)
        if snapshot.batch is not None:
            self.batch = group_work.copied(snapshot.batch)

    def obey(self, order: orders.NumberedOrder) -> None:
        match order.order:
            case orders.ReturnTo(checkpoint=number):
                self._return_to(number)
            case orders.Perform(order=wanted) if self.batch is not None:
                self.answer(order, group_work.performed(self.batch, wanted))
                return
            case orders.Decide(news=news) if self.batch is not None:
                self.batch.decide(news)
            case orders.Fence(index=index, incarnation=incarnation) if self.batch is not None:
                self.batch.forget(Worker(index, incarnation))
        super().obey(order)

    def _return_to(self, number: int) -> None:
        heard = 0 if self.batch is None else self.batch.log.coordinator
        before = list(self.applied)
        snapshot = self.world.checkpoints[number][self.index]
        assert isinstance(snapshot, WarmSnapshot)
        if self.batch is None and snapshot.applied != before:
            self.world.violations.append(f"shard {self.index} was not drained at {number}")
        if snapshot.batch is None:
            self.batch = group_work.first_shard(reached(snapshot.applied, self.index))
        else:
            self.batch = group_work.copied(snapshot.batch)
        self.batch.log.coordinator = max(heard, self.batch.log.coordinator)

    def stage(self, chunk: Chunk, values: problem.Point, sender: "WarmReplica") -> None:
        """A piece of a group's gradient."""
        if self.batch is None:
            return
        heard = group_work.stage(
            self.batch,
            chunk,
            values,
            outdated=lambda: sender.outdated(chunk.attempt),
            complete=lambda: sender.staged(chunk.attempt, self.index),
        )
        if heard is not None:
            self.world.clock.send(sender, heard)


class WarmReplica(SimReplica):
    """Works on leases until it is told that the warm start is over, then on groups."""

    def __init__(self, *place: object) -> None:
        self.groups: dict[int, group_work.Held] = {}
        self.leaving: list[orders.NumberedOrder] = []
        self.left = self.computes_group = self.asks_group = False
        super().__init__(*place)  # type: ignore[arg-type]

    def obey(self, order: orders.NumberedOrder) -> None:
        if isinstance(order.order, orders.LeaveWarmStart):
            self.leaving.append(order)
            self.stopped = True
            self.leases.clear()
            self._advance()
        else:
            super().obey(order)

    def _advance(self) -> None:
        super()._advance()
        if self.pushes or self.computing or self.accrued:
            return
        for order in self.leaving:
            self.answer(order, orders.Done())
        if self.leaving and not self.left:
            self.left = True
            self._work_on_groups()
        self.leaving.clear()

    def _work_on_groups(self) -> None:
        if self.ended:
            return
        assert self.member is not None
        if not self.asks_group and len(self.groups) < _MOST_HELD:
            self.asks_group = True
            wanted = messages.RequestWork(
                member=self.member,
                held=0,
                last_lease=self.last_lease,
                progress=self.progress,
                attempts=tuple(self.groups),
            )
            self.request(wanted, self._given)
        self._compute_next()
        self._later(_ASK_SECONDS, self._work_on_groups)

    def _given(self, reply: messages.Reply) -> None:
        assert isinstance(reply, messages.Work)
        self.asks_group = False
        for lease in reply.groups:
            self.groups.setdefault(lease.attempt, group_work.Held(lease))
        self._compute_next()

    def _compute_next(self) -> None:
        waiting = [held for held in self.groups.values() if held.computed is None]
        if self.computes_group or not waiting:
            return
        point = self._trial(waiting[0].lease)
        if point is None:
            return
        self.computes_group = True
        seconds = self.world.clock.chance.choice((0.03, 0.05, 0.5))
        self._later(seconds, lambda: self._computed(waiting[0].lease, point))

    def _trial(self, lease: GroupLease) -> problem.Point | None:
        found = [self._shard(index) for index in range(problem.SHARDS)]
        parts = [one.batch for one in found if isinstance(one, WarmShard) and one.batch is not None]
        if len(parts) < problem.SHARDS:
            return None
        if any(part.evaluation != lease.evaluation for part in parts):
            self.outdated(lease.attempt)
            return None
        return problem.whole([part.vectors[TRIAL] for part in parts])

    def _computed(self, lease: GroupLease, point: problem.Point) -> None:
        self.computes_group = False
        held = self.groups.get(lease.attempt)
        if held is not None:
            held.computed = problem.compute(lease.group, point)
            self._stage(lease.attempt)
        self._compute_next()

    def _stage(self, attempt: int) -> None:
        """Also again, while an answer is owed."""
        held = self.groups.get(attempt)
        if held is None or held.is_told:
            return
        assert self.member is not None
        for index, chunk, piece in held.owed(Worker(self.index, self.member.incarnation)):
            shard = self._shard(index)
            if isinstance(shard, WarmShard):
                self.world.clock.send(shard, partial(shard.stage, chunk, piece, self))
        self._later(RESEND_SECONDS, lambda: self._stage(attempt))

    def staged(self, attempt: int, shard: int) -> None:
        """A shard has all pieces."""
        held = self.groups.get(attempt)
        result = None if held is None else held.staged(shard)
        if result is not None:
            assert self.member is not None
            done = messages.GroupDone(member=self.member, result=result)
            self.request(done, lambda _: self.outdated(attempt))

    def outdated(self, attempt: int) -> None:
        """Nobody waits for it any more, or it counts already."""
        self.groups.pop(attempt, None)
