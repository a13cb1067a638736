"""A shard with the real table of deliveries, and a list of pushes in the place of parameters."""

from collections.abc import Callable, Mapping

from disttrain.coordinator.protocol import messages, orders
from disttrain.coordinator.protocol.fields import LostUpdates, Position, SenderPosition
from disttrain.coordinator.protocol.reports import ShardReport
from disttrain.parameter_server import counts
from disttrain.parameter_server.counts import Count
from disttrain.parameter_server.coverage import Coverage
from disttrain.parameter_server.deliveries import (
    ChunkName,
    Decision,
    Delivered,
    Deliveries,
    SenderLife,
)
from disttrain.transport.header import Role
from simulation.clockwork import Process
from simulation.warm_start.modelled.sim_coordinator import SimCoordinator
from simulation.warm_start.modelled.sim_member import SimMember
from simulation.warm_start.modelled.world import Applied, Push, Snapshot, World

CHUNKS = 2


class SimShard(SimMember):
    """One life of one shard."""

    deliveries_type = Deliveries

    def __init__(self, world: World, coordinator: SimCoordinator, index: int, life: int) -> None:
        super().__init__(world, coordinator)
        self.index = index
        self.life = life
        self.table = self.deliveries_type()
        self.applied: list[Push] = []
        self.chunks: list[tuple[int, int, int, int]] = []
        self.initialised = False
        self.corrected: dict[SenderLife, int] = {}
        self.coverage = Coverage(kept=1)
        restored = self._restore() if life > 1 else None
        self.request(
            messages.Join(
                role=Role.SHARD,
                index=index,
                instance=f"shard-{index}-{life}",
                pid=self.pid,
                data_address=f"shard-{index}-{life}",
                restored=restored,
            ),
            self._joined,
        )

    def hello(
        self, sender: int, incarnation: int, first: int, answer: Callable[[int, int], None]
    ) -> None:
        """A sender asks where to go on: the last push that is over, the next chunk."""
        if not self.initialised:
            return
        if self.table.standing(sender, incarnation) is Decision.APPLY:
            state = self.table.hello(sender, incarnation, first)
            answer(state.sequence, state.next_chunk)

    def chunk(
        self, push: Push, chunk: int, process: Process, done: Callable[[Decision], None]
    ) -> None:
        """A chunk arrives."""
        if not self.initialised:
            return
        name = ChunkName(push.sequence, chunk, CHUNKS)
        decision = self.table.decide(push.sender, push.incarnation, name)
        if decision is Decision.APPLY:
            self._apply(push, chunk)
        finished = self.table.of(push.sender, push.incarnation).sequence >= push.sequence
        if finished or decision is Decision.OLD_INCARNATION:
            self.world.clock.send(process, lambda: done(decision))

    def _apply(self, push: Push, chunk: int) -> None:
        world, sender, incarnation = self.world, push.sender, push.incarnation
        if chunk == 0:
            self.table.begin(SenderLife(sender, incarnation), chunks=CHUNKS)
        self.chunks.append((sender, incarnation, push.sequence, chunk))
        if (self.index, sender, incarnation) in world.fenced_at:
            world.violations.append(f"shard {self.index} applied {push} after the fence")
        if not self.table.applied(sender, incarnation):
            return
        lease, _, offset = push.ranges[-1]
        after = Delivered(lease=lease, lease_offset=offset, samples=push.samples)
        self.table.complete(sender, incarnation, after)
        self.applied.append(push)
        world.history.append(Applied(world.clock.now, self.index, push))
        self._acknowledge(SenderLife(sender, incarnation))

    def _acknowledge(self, life: SenderLife) -> None:
        before = self._file.get(life, Count())
        after = counts.after_push(before, self.table.of(*life))
        self._file[life] = after
        if after.lost != before.lost:
            self.corrected[life] = after.lost

    @property
    def _file(self) -> dict[SenderLife, Count]:
        return self.world.acknowledged.setdefault(self.index, {})

    def heartbeat(self) -> messages.Heartbeat:
        assert self.member is not None
        lost = tuple(
            LostUpdates(index=life.sender, incarnation=life.incarnation, lost=count)
            for life, count in self.corrected.items()
        )
        report = ShardReport(applied=len(self.applied), lost=lost)
        return messages.Heartbeat(member=self.member, epoch=self.epoch, shard=report)

    def obey(self, order: orders.NumberedOrder) -> None:
        found = order.order
        if isinstance(found, orders.Fence):
            self._fenced(order, found)
        elif isinstance(found, orders.Checkpoint):
            self._write(order, found)
        else:
            self.ended = isinstance(found, orders.End)
            self.answer(order, orders.Done())

    def _joined(self, reply: messages.Reply) -> None:
        assert isinstance(reply, messages.Joined)
        self.member = reply.member
        self.serve_only(reply.epoch, reply.replicas)
        known = {*self._file, *self.table.delivered}
        over = {life for life in known if reply.replicas.get(life.sender) != life.incarnation}
        self.coverage = Coverage(kept=1, over=over)
        self.beat()

    def heard(self, reply: messages.HeartbeatReply) -> None:
        if reply.replicas is not None and self.member is not None:
            self.serve_only(reply.epoch, reply.replicas)

    def serve_only(self, epoch: int, replicas: Mapping[int, int]) -> None:
        """These lives, unless this comes late."""
        if epoch <= self.epoch:
            return
        self.epoch = epoch
        new, gone = self.table.differences(replicas)
        for life in gone:
            self.table.fence(*life)
        for life in new:
            self.table.admit(*life)

    def _fenced(self, order: orders.NumberedOrder, fence: orders.Fence) -> None:
        assert self.member is not None
        result = self._fence(fence)
        done = messages.OrderDone(member=self.member, order=order.id, result=result)
        life = SenderLife(fence.index, fence.incarnation)
        self.request(done, lambda _: self.coverage.end(life))

    def _fence(self, order: orders.Fence) -> orders.Fenced:
        state = self.table.fence(order.index, order.incarnation)
        key = (self.index, order.index, order.incarnation)
        self.world.fenced_at.setdefault(key, self.world.clock.now)
        return orders.Fenced(
            sender=_position(SenderLife(order.index, order.incarnation), state),
            partial_chunks=state.next_chunk,
        )

    def _write(self, order: orders.NumberedOrder, checkpoint: orders.Checkpoint) -> None:
        number = checkpoint.number
        self._forget(self.coverage.cut(number, checkpoint.committed))
        staged = self.world.staged.get(number)
        if staged is None or self.world.clock.chance.random() < self.world.checkpoint_failure:
            self.answer(order, orders.OrderFailed(message="the disk is full"))
            return
        staged[self.index] = self.snapshot()
        written = orders.ShardWritten(file="shard", bytes=1, hash="0", version=len(self.applied))
        seconds = self.world.clock.chance.uniform(0.01, 0.5)
        self.world.clock.after(seconds, self, lambda: self.answer(order, written))

    def _forget(self, lives: frozenset[SenderLife]) -> None:
        for life in lives:
            if not self._file.get(life, Count()).lost:
                self._file.pop(life, None)
                self.table.forget(life)

    def snapshot(self) -> Snapshot:
        """Its part of a checkpoint."""
        return Snapshot(self.table.copy(), list(self.applied), list(self.chunks))

    def take(self, snapshot: Snapshot) -> None:
        """Begin where a checkpoint is."""
        self.applied, self.chunks = list(snapshot.applied), list(snapshot.chunks)
        self.table.restore(dict(snapshot.delivered))
        self.initialised = True

    def _restore(self) -> messages.Restored:
        number = max(self.world.checkpoints, default=None)
        table: dict[SenderLife, Delivered] = {}
        if number is not None:
            snapshot = self.world.checkpoints[number][self.index]
            table = dict(snapshot.delivered)
            self.take(snapshot)
        self._file.update(counts.rolled_back(self._file, table))
        lives = sorted({*self._file, *table})
        return messages.Restored(
            initialised=self.initialised,
            checkpoint=number,
            version=len(self.applied),
            senders=tuple(
                _sender(life, table.get(life, Delivered()), self._file.get(life, Count()))
                for life in lives
            ),
        )


def _sender(life: SenderLife, state: Delivered, count: Count) -> messages.RestoredSender:
    return messages.RestoredSender(
        sender=_position(life, state),
        acknowledged=count.pushes + count.lost,
        lost=count.lost,
    )


def _position(life: SenderLife, state: Delivered) -> SenderPosition:
    return SenderPosition(
        index=life.sender,
        incarnation=life.incarnation,
        position=Position(lease=state.lease, offset=state.lease_offset),
        samples=state.samples,
    )
