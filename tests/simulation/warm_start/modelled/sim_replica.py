"""A replica that computes, pushes and asks for work; its gradients are ranges of samples."""

from collections import deque
from collections.abc import Callable
from functools import partial

from builders.control_members import LAYOUT
from disttrain.coordinator.protocol import messages, orders
from disttrain.coordinator.protocol.fields import Lease, Position, Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.parameter_server.deliveries import Decision
from disttrain.transport.header import Role
from simulation.warm_start.modelled.sim_coordinator import SimCoordinator
from simulation.warm_start.modelled.sim_member import SimMember
from simulation.warm_start.modelled.sim_shard import CHUNKS, SimShard
from simulation.warm_start.modelled.world import Push, Range, World, accuracy

STEP_SECONDS = 0.2
IDLE_SECONDS = 0.3
RESEND_SECONDS = 0.5


class SimReplica(SimMember):
    """One life of one replica."""

    def __init__(self, world: World, coordinator: SimCoordinator, index: int) -> None:
        super().__init__(world, coordinator)
        self.index = index
        self.leases: deque[Lease] = deque()
        self.offset = 0
        self.last_lease = 0
        self.accrued: list[Range] = []
        self.steps = 0
        self.sequence = 0
        self.pushes: deque[Push] = deque()
        self.unanswered: set[int] = set()
        self.progress = Progress()
        self.reached: dict[int, int] = {}
        self.abandoned: dict[int, int] = {}
        self.lost: set[int] = set()
        self.told: set[int] = set()
        """Lost leases whose ends are in the heartbeat that is not answered yet."""
        self.draining: list[orders.NumberedOrder] = []
        self.asking = self.computing = self.stopped = False
        self.request(
            messages.Join(
                role=Role.REPLICA,
                index=index,
                instance=f"replica-{self.pid}",
                pid=self.pid,
                layout=LAYOUT,
                train_samples=world.samples,
                test_samples=10,
            ),
            self._joined,
        )

    def heartbeat(self) -> messages.Heartbeat:
        assert self.member is not None
        self.told = {position.lease for position in self.progress.abandoned}
        report = ReplicaReport(progress=self.progress, steps=self.steps)
        return messages.Heartbeat(member=self.member, epoch=self.epoch, replica=report)

    def heard(self, reply: messages.HeartbeatReply) -> None:
        self.epoch = max(self.epoch, reply.epoch)
        self._forget(self.told.difference(reply.lost_leases))
        self._lose(reply.lost_leases)

    def obey(self, order: orders.NumberedOrder) -> None:
        found = order.order
        chance = self.world.clock.chance
        if isinstance(found, orders.Upload):
            self._upload(order, found.shards)
        elif isinstance(found, orders.Drain):
            self.draining.append(order)
            self.stopped = True
            self.leases.clear()
            self.offset = 0
            self._advance()
        elif isinstance(found, orders.Evaluate):
            file = found.model_file
            self._later(chance.uniform(0.1, 1.0), lambda: self._evaluate(order, file))
        else:
            if isinstance(found, orders.Export):
                self.world.exported = int(found.checkpoint)
            self.ended = isinstance(found, orders.End)
            self.answer(order, orders.Done())

    def _evaluate(self, order: orders.NumberedOrder, file: str | None) -> None:
        """Like a fetch, it waits until every shard lives."""
        updates = self.world.exported_updates() if file is not None else self._updates()
        if updates is None:
            self._later(0.2, lambda: self._evaluate(order, file))
            return
        sums = {"accuracy": 10 * accuracy(updates)}
        self.answer(order, orders.Evaluated(sums=sums, samples=10, loss=1.0))

    def _updates(self) -> int | None:
        shards = [self._shard(index) for index in range(self.world.settings.shards)]
        living = [len(shard.applied) for shard in shards if shard is not None]
        return sum(living) if len(living) == len(shards) else None

    def _joined(self, reply: messages.Reply) -> None:
        assert isinstance(reply, messages.Joined)
        self.member = reply.member
        self.beat()
        self._ask()

    def _upload(self, order: orders.NumberedOrder, shards: tuple[int, ...]) -> None:
        """Uploads are reliable here: they wait until every shard lives."""
        missing = [index for index in shards if self._shard(index) is None]
        if missing:
            self._later(0.2, lambda: self._upload(order, shards))
            return
        for index in shards:
            shard = self._shard(index)
            if shard is not None:
                shard.initialised = True
        self._later(0.1, lambda: self.answer(order, orders.Done()))

    def _ask(self) -> None:
        if self.asking or self.stopped or self.ended or len(self.leases) > 1:
            return
        assert self.member is not None
        self.asking = True
        request = messages.RequestWork(
            member=self.member,
            held=len(self.leases),
            last_lease=self.last_lease,
            progress=self.progress,
        )
        self.request(request, self._work)

    def _work(self, reply: messages.Reply) -> None:
        assert isinstance(reply, messages.Work)
        self.asking = False
        if not self.stopped:
            for lease in reply.leases:
                if lease.id > self.last_lease:
                    self.last_lease = lease.id
                    if lease.id not in self.lost and lease.id not in self.abandoned:
                        self.leases.append(lease)
        self._lose(reply.lost_leases)
        if not self.leases:
            self._flush()
            self._later(IDLE_SECONDS, self._ask)
        self._advance()

    def _lose(self, lost: tuple[int, ...]) -> None:
        fresh = {lease for lease in lost if lease not in self.abandoned} - self.lost
        self.lost |= fresh
        if self.leases and self.leases[0].id in fresh:
            self.offset = 0
        self.leases = deque(lease for lease in self.leases if lease.id not in fresh)
        if fresh:
            self._flush()
            self._advance()

    def _advance(self) -> None:
        """Whatever can go on, goes on."""
        self._compute()
        if self.pushes or self.computing:
            return
        if self.draining or self.lost:
            self._flush()
        if self.pushes:
            return
        if self.lost:
            self.abandoned |= {lease: self.reached.get(lease, 0) for lease in self.lost}
            self.lost.clear()
            self._note()
        for order in self.draining:
            self.answer(order, orders.Drained(progress=self.progress))
        self.draining.clear()
        if len(self.leases) < 2:
            self._ask()

    def _compute(self) -> None:
        if self.computing or not self.leases or len(self.pushes) > 1:
            return
        self.computing = True
        lease = self.leases[0]
        seconds = STEP_SECONDS * self.world.clock.chance.uniform(0.5, 2.0)
        self._later(seconds, lambda: self._stepped(lease))

    def _stepped(self, lease: Lease) -> None:
        self.computing = False
        if self.leases and self.leases[0].id == lease.id:
            end = min(self.offset + self.world.settings.batch_size, lease.samples)
            self.accrued.append((lease.id, self.offset, end))
            self.offset = end
            if end == lease.samples:
                self.leases.popleft()
                self.offset = 0
            self.steps += 1
            if self.steps % self.world.push_every == 0:
                self._flush()
        self._advance()

    def _flush(self) -> None:
        if not self.accrued:
            return
        assert self.member is not None
        self.sequence += 1
        push = Push(self.index, self.member.incarnation, self.sequence, tuple(self.accrued))
        self.accrued = []
        self.pushes.append(push)
        if len(self.pushes) == 1:
            self._push()

    def _push(self) -> None:
        push = self.pushes[0]
        self.unanswered = set(range(self.world.settings.shards))
        for index in self.unanswered:
            self._send(push, index, 0)
        self._later(RESEND_SECONDS, lambda: self._resend(push))

    def _send(self, push: Push, index: int, first_chunk: int) -> None:
        shard = self._shard(index)
        if shard is None:
            return

        def answered(decision: Decision) -> None:
            if decision is Decision.OLD_INCARNATION:
                self.alive = False
            else:
                self._pushed(push, index)

        for chunk in range(first_chunk, CHUNKS):
            self.world.clock.send(shard, partial(shard.chunk, push, chunk, self, answered))

    def _resend(self, push: Push) -> None:
        if not self.pushes or self.pushes[0] is not push:
            return
        for index in sorted(self.unanswered):
            shard = self._shard(index)
            if shard is not None:
                self.world.clock.send(shard, self._hello(push, index, shard))
        self._later(RESEND_SECONDS, lambda: self._resend(push))

    def _hello(self, push: Push, index: int, shard: SimShard) -> Callable[[], None]:
        def welcome(over: int, chunk: int) -> None:
            def go_on() -> None:
                if not self.pushes or self.pushes[0] is not push:
                    return
                if over >= push.sequence:
                    self._pushed(push, index)
                else:
                    self._send(push, index, chunk)

            self.world.clock.send(self, go_on)

        return lambda: shard.hello(self.index, push.incarnation, push.sequence, welcome)

    def _pushed(self, push: Push, index: int) -> None:
        if not self.pushes or self.pushes[0] is not push:
            return
        self.unanswered.discard(index)
        if self.unanswered:
            return
        self.pushes.popleft()
        for lease, _, end in push.ranges:
            self.reached[lease] = end
        lease, _, end = push.ranges[-1]
        samples = self.progress.samples + push.samples
        position = Position(lease=lease, offset=end)
        self.progress = Progress(
            position=position, samples=samples, abandoned=self.progress.abandoned
        )
        if self.pushes:
            self._push()
        self._advance()

    def _forget(self, heard: set[int]) -> None:
        """Leases whose ends the coordinator has heard, unless work of them may be on its way."""
        for lease in heard:
            if lease < self.last_lease:
                self.abandoned.pop(lease, None)
        self._note()

    def _note(self) -> None:
        self.progress = Progress(
            position=self.progress.position,
            samples=self.progress.samples,
            abandoned=tuple(
                Position(lease=lease, offset=offset) for lease, offset in self.abandoned.items()
            ),
        )

    def _shard(self, index: int) -> SimShard | None:
        found = self.world.processes.get(f"shard-{index}")
        return found if isinstance(found, SimShard) and found.alive else None

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self.world.clock.after(seconds, self, action)
