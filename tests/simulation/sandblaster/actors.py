"""Coordinators, shards and replicas of a simulated Sandblaster job, around the pure classes."""

import copy
from dataclasses import dataclass, field
from functools import partial

from disttrain.sandblaster.batch import driver as driving
from disttrain.sandblaster.batch.driver import Course, Stage
from disttrain.sandblaster.batch.groups import Attempt, Result, Worker
from disttrain.sandblaster.batch.orders import Decided, Order, Performed
from disttrain.sandblaster.batch.shard import BatchShard
from disttrain.sandblaster.batch.staging import Chunk
from disttrain.sandblaster.errors import NotStaged, OrderRefused
from disttrain.sandblaster.kernels import Array
from disttrain.sandblaster.names import TRIAL
from simulation.clockwork import Clockwork, Process
from simulation.sandblaster import group_work, problem

_RETRY = 0.3
_SILENCE = 2.0
"""Seconds after which a replica counts as dead."""
_NOTICES = 0.2
"""How likely a replica sees, each time, that there is a newer coordinator."""


@dataclass(slots=True)
class Job:
    """What outlives processes: the disk, who is who, and what is checked at the end."""

    clock: Clockwork
    kind: problem.Kind = problem.Kind.WHOLE
    cut: bytes = b""
    cut_shards: "list[BatchShard]" = field(default_factory=list)
    coordinator: "SimCoordinator | None" = None
    shards: "list[SimShard]" = field(default_factory=list)
    lives: dict[int, int] = field(default_factory=dict)
    """Latest incarnation of each replica."""
    violations: list[str] = field(default_factory=list)
    committed: dict[int, set[tuple[int, ...]]] = field(default_factory=dict)
    """Attempts that shards committed, by the life of all shards times a large number + order."""
    rollbacks: int = 0

    @property
    def is_over(self) -> bool:
        """The newest coordinator knows that the method has ended."""
        return self.coordinator is not None and self.coordinator.is_done


class SimShard(Process):
    """One life of a shard."""

    def __init__(self, job: Job, index: int, incarnation: int, inner: BatchShard) -> None:
        super().__init__()
        self.job, self.index, self.incarnation, self.inner = job, index, incarnation, inner
        self.newest = 0

    def order(self, order: Order, sender: "SimCoordinator") -> None:
        try:
            answer = self.inner.carry_out(order)
        except OrderRefused:
            if order.coordinator == self.inner.log.coordinator:
                self.job.clock.send(sender, lambda: sender.refused(self, order.number))
            return
        except Exception as error:
            # Whatever it is: a good coordinator causes none.
            self.job.violations.append(f"shard {self.index}: {error}")
            return
        if order.coordinator < self.newest:
            self.job.violations.append(f"shard {self.index} obeyed an old coordinator")
        self.newest = max(self.newest, order.coordinator)
        if order.commits:
            key = self.incarnation * 1_000_000 + order.number
            self.job.committed.setdefault(key, set()).add(order.commits)
        self.job.clock.send(sender, lambda: sender.performed(self, answer))

    def decide(self, news: Decided) -> None:
        try:
            self.inner.decide(news)
        except OrderRefused:
            return
        except NotStaged as error:
            self.job.violations.append(f"shard {self.index}: {error}")

    def stage(self, chunk: Chunk, values: Array, sender: "SimReplica") -> None:
        heard = group_work.stage(
            self.inner,
            chunk,
            values,
            outdated=lambda: sender.outdated(chunk.attempt),
            complete=lambda: sender.staged(chunk.attempt, self),
        )
        if heard is not None:
            self.job.clock.send(sender, heard)


class SimCoordinator(Process):
    """One life of the coordinator. It may sleep and not know that another one took over."""

    def __init__(self, job: Job, incarnation: int) -> None:
        super().__init__()
        self.job, self.incarnation, self.driver = job, incarnation, problem.driver(job.kind)
        self.heard: dict[Worker, float] = {}
        self.course: Course
        if job.coordinator is not None:
            # Whatever the last life decided it has journaled first.
            self.course = driving.COURSE_JSON.read(
                driving.COURSE_JSON.write(job.coordinator.course)
            )
            self.driver.taken_over(self.course, incarnation)
            workers = {attempt.worker for attempt in self.course.evaluation.attempts.values()}
            self.heard = dict.fromkeys(workers, job.clock.now)
        else:
            self.course = self.driver.begin(incarnation, (1,) * problem.SHARDS)
        job.clock.after(0.0, self, self.tick)

    @property
    def is_done(self) -> bool:
        return self.course.stage is Stage.DONE

    def tick(self) -> None:
        """Repeat the order to those who have not answered; see who is silent."""
        if self.is_done:
            return
        for shard in self.job.shards:
            if self.course.stage is not Stage.COMPUTING and shard.index not in self.course.answers:
                self.send(shard)
        for worker, when in list(self.heard.items()):
            if self.job.clock.now - when > _SILENCE:
                del self.heard[worker]
                self.driver.lost(self.course, worker)
        self.job.clock.after(_RETRY, self, self.tick)

    def send(self, shard: SimShard) -> None:
        order = self.course.order
        if shard.incarnation == self.course.evaluation.shards[shard.index]:
            self.job.clock.send(shard, lambda: shard.order(order, self))

    def performed(self, shard: SimShard, answer: Performed) -> None:
        if shard.incarnation != self.course.evaluation.shards[shard.index]:
            return
        before = self.course.order.number
        self.driver.answered(self.course, shard.index, answer)
        if self.course.order.number != before:
            self.cut()
            for one in self.job.shards:
                self.send(one)

    def refused(self, shard: SimShard, number: int) -> None:
        """A shard went ahead with an earlier life of the coordinator."""
        current = shard.incarnation == self.course.evaluation.shards[shard.index]
        if current and number == self.course.order.number:
            self.return_to_cut()

    def return_to_cut(self) -> None:
        """All shards go back to the last checkpoint, in new lives, and so does the course."""
        job = self.job
        if job.coordinator is not self:
            return
        job.rollbacks += 1
        for shard in job.shards:
            shard.alive = False
        job.shards = [
            SimShard(job, old.index, old.incarnation + 1, copy.deepcopy(inner))
            for old, inner in zip(job.shards, job.cut_shards, strict=True)
        ]
        lives = tuple(shard.incarnation for shard in job.shards)
        self.driver.returned(self.course, driving.COURSE_JSON.read(job.cut), lives)

    def cut(self) -> None:
        """A checkpoint now and then: nobody has heard of the new order yet."""
        newest = self.job.coordinator is self or self.job.coordinator is None
        if newest and self.course.stage is Stage.PREPARING and self.job.clock.chance.random() < 0.3:
            self.job.cut = driving.COURSE_JSON.write(self.course)
            self.job.cut_shards = [copy.deepcopy(shard.inner) for shard in self.job.shards]

    def ask(self, replica: "SimReplica") -> None:
        if self.knows(replica):
            attempt = self.driver.request_group(self.course, replica.worker)
            evaluation, shards = self.course.evaluation.number, self.course.evaluation.shards
            self.job.clock.send(replica, lambda: replica.given(attempt, evaluation, shards))

    def result(self, replica: "SimReplica", result: Result) -> None:
        if self.knows(replica):
            before = self.course.order.number
            self.driver.staged(self.course, replica.worker, result)
            if self.course.stage is not Stage.PREPARING:
                self.job.clock.send(replica, lambda: replica.outdated(result.attempt))
            if self.course.order.number != before:
                for shard in self.job.shards:
                    self.send(shard)
            elif self.course.stage is Stage.COMPUTING:
                self.tell()

    def tell(self) -> None:
        """Which attempts have won so far."""
        news = self.driver.decided(self.course)
        for shard in self.job.shards:
            if shard.incarnation == self.course.evaluation.shards[shard.index]:
                self.job.clock.send(shard, partial(shard.decide, news))

    def knows(self, replica: "SimReplica") -> bool:
        """Whether this life of the replica is the latest one."""
        if self.job.lives[replica.worker.index] != replica.worker.incarnation:
            self.driver.lost(self.course, replica.worker)
            self.heard.pop(replica.worker, None)
            return False
        self.heard[replica.worker] = self.job.clock.now
        return True


class SimReplica(Process):
    """One life of a replica: asks, computes, stages everywhere, says so, asks again."""

    def __init__(self, job: Job, index: int, speed: float) -> None:
        super().__init__()
        job.lives[index] = job.lives.get(index, 0) + 1
        self.job, self.speed, self.worker = job, speed, Worker(index, job.lives[index])
        self.attempt: Attempt | None = None
        self.evaluation, self.shards = 0, (0,) * problem.SHARDS
        self.acknowledged: set[int] = set()
        self.computed: problem.Computed | None = None
        self.coordinator = job.coordinator
        job.clock.after(0.0, self, self.tick)

    def tick(self) -> None:
        """Say again whatever was not answered, sometimes to who is the coordinator no more."""
        if self.job.clock.chance.random() < _NOTICES:
            self.coordinator = self.job.coordinator
        coordinator = self.coordinator
        assert coordinator is not None
        if self.attempt is None:
            self.job.clock.send(coordinator, lambda: coordinator.ask(self))
        elif self.computed is not None:
            self.push(self.attempt.number, self.computed)
        self.job.clock.after(_RETRY, self, self.tick)

    def given(self, attempt: Attempt | None, evaluation: int, shards: tuple[int, ...]) -> None:
        if self.attempt is not None or attempt is None:
            return
        self.attempt, self.evaluation, self.shards = attempt, evaluation, shards
        self.acknowledged, self.computed = set(), None
        seconds = self.speed * self.job.clock.chance.uniform(0.05, 0.2)
        parts = [shard for shard in self.job.shards if shard.incarnation == shards[shard.index]]
        if len(parts) < problem.SHARDS:
            self.attempt = None
            return
        point = problem.whole([shard.inner.vectors[TRIAL] for shard in parts])
        number = attempt.number
        self.job.clock.after(seconds, self, lambda: self.compute(number, point))

    def compute(self, number: int, point: problem.Point) -> None:
        if self.attempt is not None and self.attempt.number == number:
            self.computed = problem.compute(self.attempt.group, point)
            self.push(number, self.computed)

    def push(self, number: int, computed: problem.Computed) -> None:
        for shard, part in zip(self.job.shards, problem.RANGES, strict=True):
            if shard.index in self.acknowledged:
                continue
            if shard.incarnation != self.shards[shard.index]:
                self.outdated(number)
                return
            self.push_to(shard, computed.gradient[part])
        if len(self.acknowledged) == problem.SHARDS:
            self.say(number, computed)

    def push_to(self, shard: SimShard, values: problem.Point) -> None:
        if self.attempt is None:
            return
        group, attempt = self.attempt.group, self.attempt.number
        for chunk, piece in group_work.pieces(self.worker, self.evaluation, group, attempt, values):
            self.job.clock.send(shard, partial(shard.stage, chunk, piece, self))

    def staged(self, number: int, shard: SimShard) -> None:
        if self.attempt is None or self.attempt.number != number or self.computed is None:
            return
        self.acknowledged.add(shard.index)
        if len(self.acknowledged) == problem.SHARDS:
            self.say(number, self.computed)

    def say(self, number: int, computed: problem.Computed) -> None:
        coordinator = self.coordinator
        assert coordinator is not None
        result = Result(
            attempt=number,
            evaluation=self.evaluation,
            loss_sum=computed.loss_sum,
            samples=computed.samples,
            shards=self.shards,
        )
        self.job.clock.send(coordinator, lambda: coordinator.result(self, result))

    def outdated(self, number: int) -> None:
        """Nobody waits for this attempt any more, or it counts already."""
        if self.attempt is not None and self.attempt.number == number:
            self.attempt = None


def first_shards(job: Job, point: problem.Point = problem.START) -> list[SimShard]:
    made = []
    for index, part in enumerate(problem.RANGES):
        made.append(SimShard(job, index, 1, group_work.first_shard(point[part])))
    return made
