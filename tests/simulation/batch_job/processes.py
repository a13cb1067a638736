"""The processes of a simulated job with a batch method: the real machine and the real shards."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from builders.control_members import LAYOUT
from disttrain.coordinator.decisions.machine import Coordinator, Decision
from disttrain.coordinator.decisions.turn import BeginCheckpoint, CommitCheckpoint, Places
from disttrain.coordinator.journal import entries, state
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.protocol import messages, orders
from disttrain.coordinator.protocol.fields import (
    NO_PROGRESS,
    MemberId,
    Position,
    SenderPosition,
)
from disttrain.coordinator.protocol.messages import GroupLease
from disttrain.coordinator.protocol.reports import ReplicaReport, ShardReport
from disttrain.coordinator.strategies.sandblaster import BatchMethod
from disttrain.sandblaster.batch.groups import Worker
from disttrain.sandblaster.batch.shard import BatchShard
from disttrain.sandblaster.batch.staging import Chunk
from disttrain.sandblaster.names import PARAMETERS, TRIAL
from disttrain.transport.header import Role
from simulation.clockwork import Clockwork, Process
from simulation.sandblaster import group_work, problem

_RETRY = 0.3
_TICK = 0.05
_HEARTBEAT = 0.4
_CRASH_IN_BETWEEN = 0.003
"""How likely the coordinator dies after it journaled and before it acts."""
_INSTANCES = count(1)

Then = Callable[[messages.Reply], None]


@dataclass(slots=True)
class World:
    """What outlives processes: the disk, who runs, and what is checked at the end."""

    clock: Clockwork
    rules: BatchMethod
    first_state: bytes = field(default_factory=lambda: state.to_json(State()))
    journal: list[bytes] = field(default_factory=list)
    staging: dict[int, dict[int, BatchShard]] = field(default_factory=dict)
    checkpoints: dict[int, dict[int, BatchShard]] = field(default_factory=dict)
    coordinator: "SimCoordinator | None" = None
    shards: "list[SimShard]" = field(default_factory=list)
    ledgers: dict[int, bytes] = field(default_factory=dict)
    """The coordinator's part of each checkpoint."""
    measured: list[bytes] = field(default_factory=list)
    """Parameters that replicas have measured, also for coordinators that took them no more."""
    crashes: bool = True

    def taken(self) -> set[bytes]:
        """Of these, what the coordinator has among its evaluations."""
        assert self.coordinator is not None
        found = (one.measures.get("number") for one in self.coordinator.state.evaluations)
        return {self.measured[int(number)] for number in found if number is not None}

    @property
    def phase(self) -> state.Phase:
        return state.Phase.WAITING if self.coordinator is None else self.coordinator.state.phase


class Killed(Exception):
    """The coordinator died in the middle of something."""


class SimCoordinator(Process):
    """One life."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        known = state.from_json(world.first_state)
        for line in world.journal:
            entries.fold(known, entries.from_json(line))
        places = Places(model_file="model", staging=str, checkpoint=str)
        self.machine = Coordinator(known, (world.rules,), places)
        world.coordinator = self
        if world.journal:
            committed = max(world.checkpoints, default=None)
            self.settle(self.machine.restarted(world.clock.now, committed))
        world.clock.after(0.0, self, self.tick)

    @property
    def state(self) -> State:
        return self.machine.state

    def tick(self) -> None:
        self.settle(self.machine.tick(self.world.clock.now))
        self.world.clock.after(_TICK, self, self.tick)

    def ask(self, request: messages.Request, reply: Callable[[messages.Reply], None]) -> None:
        decision = self.machine.request(request, self.world.clock.now)
        self.settle(decision)
        if decision.reply is not None:
            reply(decision.reply)

    def settle(self, decision: Decision) -> None:
        """Journal, then act; it may die in between."""
        world = self.world
        if decision.decided:
            world.journal.append(entries.to_json(decision.decided))
            if world.crashes and world.clock.chance.random() < _CRASH_IN_BETWEEN:
                self.alive = False
                raise Killed
        for effect in decision.effects:
            if isinstance(effect, BeginCheckpoint):
                world.ledgers[effect.number] = effect.ledger
                world.staging = {effect.number: {}}
            elif isinstance(effect, CommitCheckpoint):
                world.checkpoints[effect.number] = world.staging.pop(effect.number)
                ended = self.machine.checkpoint_ended(effect.number, world.clock.now)
                self.settle(ended)


class Member(Process):
    """Requests that are repeated until they are answered, and orders that are done once."""

    role: Role

    def __init__(self, world: World, index: int) -> None:
        super().__init__()
        self.world, self.index = world, index
        self.pid = next(_INSTANCES)
        self.member: MemberId | None = None
        self._open: dict[int, tuple[messages.Request, Then]] = {}
        self._numbers = count(1)
        self._seen: set[int] = set()
        self.ended = False
        self.ask(self.introduction(), self._joined)
        world.clock.after(_RETRY, self, self._repeat)

    def introduction(self) -> messages.Join:
        raise NotImplementedError

    def report(self, member: MemberId) -> messages.Heartbeat:
        raise NotImplementedError

    def obey(self, order: orders.Order) -> orders.Result | None:
        raise NotImplementedError

    def ask(self, request: messages.Request, then: Then) -> None:
        number = next(self._numbers)
        self._open[number] = (request, then)
        self._send(number)

    def _send(self, number: int) -> None:
        request, _ = self._open[number]
        coordinator, clock = self.world.coordinator, self.world.clock

        def answered(reply: messages.Reply) -> None:
            clock.send(self, lambda: self._answered(number, reply))

        if coordinator is not None:
            clock.send(coordinator, lambda: coordinator.ask(request, answered))

    def _repeat(self) -> None:
        for number in list(self._open):
            self._send(number)
        self.world.clock.after(_RETRY, self, self._repeat)

    def _answered(self, number: int, reply: messages.Reply) -> None:
        if number not in self._open:
            return
        _, then = self._open.pop(number)
        if isinstance(reply, messages.Refused):
            self.alive = False
            return
        then(reply)

    def _joined(self, reply: messages.Reply) -> None:
        assert isinstance(reply, messages.Joined)
        self.member = reply.member
        self._beat()

    def _beat(self) -> None:
        assert self.member is not None
        self.ask(self.report(self.member), self._heard)
        self.world.clock.after(_HEARTBEAT, self, self._beat)

    def _heard(self, reply: messages.Reply) -> None:
        assert isinstance(reply, messages.HeartbeatReply)
        for numbered in reply.orders:
            if numbered.id not in self._seen:
                self._seen.add(numbered.id)
                self._carry_out(numbered)

    def _carry_out(self, numbered: orders.NumberedOrder) -> None:
        result = self.obey(numbered.order)
        if result is not None:
            self.done(numbered.id, result)

    def done(self, number: int, result: orders.Result) -> None:
        assert self.member is not None
        done = messages.OrderDone(member=self.member, order=number, result=result)
        self.ask(done, lambda _: None)


class SimShard(Member):
    """One life of a shard."""

    role = Role.SHARD

    def __init__(self, world: World, index: int) -> None:
        newest = max(world.checkpoints, default=None)
        self.restored = newest
        self.batch = None if newest is None else loaded(world, newest, index)
        super().__init__(world, index)

    def introduction(self) -> messages.Join:
        restored = None
        if self.batch is not None:
            restored = messages.Restored(initialised=True, checkpoint=self.restored, version=1)
        return messages.Join(
            role=Role.SHARD,
            index=self.index,
            instance=f"s{self.pid}",
            pid=self.pid,
            data_address="ipc:///x",
            restored=restored,
        )

    def report(self, member: MemberId) -> messages.Heartbeat:
        return messages.Heartbeat(member=member, shard=ShardReport())

    def begin(self) -> None:
        """Initial values, from a replica."""
        if self.batch is None:
            start = problem.START[problem.RANGES[self.index]]
            self.batch = group_work.first_shard(start)

    def obey(self, order: orders.Order) -> orders.Result | None:
        match order:
            case orders.Perform(order=wanted):
                return group_work.performed(self._batch(), wanted)
            case orders.Checkpoint(number=number):
                self.world.staging.get(number, {})[self.index] = copy.deepcopy(self._batch())
                return orders.ShardWritten(file="f", bytes=1, hash="0", version=1)
            case orders.ReturnTo(checkpoint=number):
                heard = self._batch().log.coordinator
                self.batch = loaded(self.world, number, self.index)
                self.batch.log.coordinator = max(heard, self.batch.log.coordinator)
            case orders.Decide(news=news):
                self._batch().decide(news)
            case orders.Fence(index=index, incarnation=incarnation):
                if self.batch is not None:
                    self.batch.forget(Worker(index, incarnation))
                position = SenderPosition(index=index, incarnation=incarnation, position=Position())
                return orders.Fenced(sender=position)
            case orders.End():
                self.ended = True
        return orders.Done()

    def _batch(self) -> BatchShard:
        assert self.batch is not None
        return self.batch

    def stage(self, chunk: Chunk, values: problem.Point, sender: "SimReplica") -> None:
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


def loaded(world: World, number: int, index: int) -> BatchShard:
    """A shard as it was in a checkpoint; nothing is staged."""
    return group_work.copied(world.checkpoints[number][index])


class SimReplica(Member):
    """One life of a replica: computes a group at a time, and asks for another meanwhile."""

    role = Role.REPLICA

    def __init__(self, world: World, index: int, slowness: float = 1.0) -> None:
        self.slowness = slowness
        self.held: dict[int, group_work.Held] = {}
        self.computing = self.asking = False
        super().__init__(world, index)

    def introduction(self) -> messages.Join:
        return messages.Join(
            role=Role.REPLICA,
            index=self.index,
            instance=f"r{self.pid}",
            pid=self.pid,
            layout=LAYOUT,
            train_samples=problem.GROUPS,
            test_samples=5,
        )

    def report(self, member: MemberId) -> messages.Heartbeat:
        self._work()
        return messages.Heartbeat(member=member, replica=ReplicaReport())

    def obey(self, order: orders.Order) -> orders.Result | None:
        match order:
            case orders.Upload():
                for shard in self.world.shards:
                    shard.begin()
            case orders.Evaluate(model_file=None):
                parts = [shard.batch for shard in self.world.shards]
                if any(part is None for part in parts):
                    return orders.OrderFailed(message="no shard")
                vectors = [part.vectors[PARAMETERS] for part in parts if part is not None]
                self.world.measured.append(problem.whole(vectors).tobytes())
                number = float(len(self.world.measured) - 1)
                return orders.Evaluated(sums={"number": number}, samples=1, loss=1.0)
            case orders.Evaluate():
                return orders.Evaluated(sums={"a": 1.0}, samples=5, loss=1.0)
            case orders.End():
                self.ended = True
        return orders.Done()

    def _work(self) -> None:
        if self.member is not None and not self.asking and len(self.held) < 2:
            self.asking = True
            wanted = messages.RequestWork(
                member=self.member,
                held=0,
                last_lease=0,
                progress=NO_PROGRESS,
                attempts=tuple(self.held),
            )
            self.ask(wanted, self._given)
        self._compute_next()
        for held in self.held.values():
            self._push(held)

    def _given(self, reply: messages.Reply) -> None:
        assert isinstance(reply, messages.Work)
        self.asking = False
        for lease in reply.groups:
            self.held.setdefault(lease.attempt, group_work.Held(lease))
        self.world.clock.after(0.05, self, self._work)

    def _compute_next(self) -> None:
        waiting = [held.lease for held in self.held.values() if held.computed is None]
        if self.computing or not waiting:
            return
        lease, point = waiting[0], self._trial(waiting[0])
        if point is None:
            return
        self.computing = True
        seconds = self.slowness * self.world.clock.chance.uniform(0.02, 0.1)
        self.world.clock.after(seconds, self, lambda: self._compute(lease, point))

    def _trial(self, lease: GroupLease) -> problem.Point | None:
        parts = [shard.batch for shard in self.world.shards if shard.alive]
        known = [part for part in parts if part is not None]
        if len(known) < problem.SHARDS:
            return None
        if any(part.evaluation != lease.evaluation for part in known):
            self.outdated(lease.attempt)
            return None
        return problem.whole([part.vectors[TRIAL] for part in known])

    def _compute(self, lease: GroupLease, point: problem.Point) -> None:
        self.computing = False
        held = self.held.get(lease.attempt)
        if held is not None:
            held.computed = problem.compute(lease.group, point)
            self._push(held)
        self._compute_next()

    def _push(self, held: group_work.Held) -> None:
        assert self.member is not None
        for index, chunk, piece in held.owed(Worker(self.index, self.member.incarnation)):
            shard = self.world.shards[index]
            self.world.clock.send(shard, partial(shard.stage, chunk, piece, self))

    def staged(self, attempt: int, shard: int) -> None:
        held = self.held.get(attempt)
        result = None if held is None else held.staged(shard)
        if result is not None:
            assert self.member is not None
            done = messages.GroupDone(member=self.member, result=result)
            self.ask(done, lambda _: self.outdated(attempt))

    def outdated(self, attempt: int) -> None:
        """Nobody waits for it any more, or it counts already."""
        self.held.pop(attempt, None)
