"""Whole jobs with a batch method, with faults drawn from a seed."""

import random
from dataclasses import dataclass, replace

from disttrain.coordinator.journal import batch_rules, resume, state
from disttrain.coordinator.journal.state import Phase
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.settings import Settings
from disttrain.coordinator.strategies.sandblaster import BatchMethod
from disttrain.job.batch_optimizer import BatchOptimizer, Lbfgs
from disttrain.job.evaluation import Evaluation
from disttrain.job.stop import Stop
from disttrain.job.strategies.sandblaster import Sandblaster
from disttrain.job.strategy_kind import Precision
from disttrain.sandblaster.batch.driver import Stage
from disttrain.sandblaster.names import PARAMETERS
from disttrain.transport.header import Role
from simulation.batch_job.processes import (
    Killed,
    Member,
    SimCoordinator,
    SimReplica,
    SimShard,
    World,
)
from simulation.clockwork import Clockwork, Weather
from simulation.sandblaster import chaos, problem

LONGEST = 3000.0
"""Simulated seconds in which every run must end."""
_STORMY_SECONDS = 20.0
_REPLICAS = 3
_MOMENT_ITERATION = 3

RULES = Sandblaster(
    precision=Precision.FLOAT64,
    portion_size=1,
    push_every_portions=1,
    optimizer=BatchOptimizer(lbfgs=Lbfgs(history=2, gradient_tolerance=0.0, change_tolerance=1e-5)),
)
SMALL_BATCHES = RULES.model_copy(
    update={
        "batch_size": 4,
        "optimizer": BatchOptimizer(
            lbfgs=Lbfgs(history=2, gradient_tolerance=0.0, change_tolerance=0.8)
        ),
    }
)
"""Four of the seven groups in each iteration; the method ends early."""
SETTINGS = Settings(
    replicas=_REPLICAS,
    shards=problem.SHARDS,
    batch_size=1,
    seed=1,
    stop=Stop(iterations=1000),
    portion_size=1,
    evaluation=Evaluation(),
    checkpoint_seconds=1.5,
    lease_seconds=3.0,
    member_timeout_seconds=6.0,
)
METHOD = BatchMethod(settings=SETTINGS, rules=RULES)


def truth(rules: Sandblaster = RULES) -> bytes:
    """Parameters that an undisturbed serial run ends with."""
    _, parameters = chaos.serial(batch_rules.driver(rules, problem.GROUPS, SETTINGS.seed))
    return parameters


def final(world: World) -> bytes:
    """Parameters in the last checkpoint."""
    parts = world.checkpoints[max(world.checkpoints)]
    return problem.whole([parts[index].vectors[PARAMETERS] for index in sorted(parts)]).tobytes()


class Storm:
    """Kills and pauses processes, for a while; the launcher starts them again."""

    def __init__(self, world: World, chance: random.Random, *, is_quiet: bool) -> None:
        self.world, self.chance, self.clock = world, chance, world.clock
        SimCoordinator(world)
        world.shards = [SimShard(world, index) for index in range(problem.SHARDS)]
        self.replicas = [SimReplica(world, index, self.slowness()) for index in range(_REPLICAS)]
        if not is_quiet:
            self.clock.after(chance.expovariate(0.5), None, self.strike)
        self.clock.after(0.5, None, self.look)

    def slowness(self) -> float:
        return self.chance.choice((1.0, 1.0, 10.0))

    def strike(self) -> None:
        if self.clock.now > _STORMY_SECONDS:
            self.world.crashes = False
            return
        victim = self.chance.choice((self.replicas, self.replicas, self.world.shards, None))
        if victim is None:
            assert self.world.coordinator is not None
            self.world.coordinator.alive = False
        else:
            process = self.chance.choice(list(victim))
            if isinstance(process, SimReplica) and self.chance.random() < 0.5:
                process.paused_until = self.clock.now + self.chance.uniform(0.1, 8.0)
            else:
                process.alive = False
        self.clock.after(self.chance.expovariate(0.5), None, self.strike)

    def look(self) -> None:
        """The launcher: who has died is told of and started again."""
        coordinator = self.world.coordinator
        assert coordinator is not None
        if not coordinator.alive:
            try:
                coordinator = SimCoordinator(self.world)
            except Killed:
                self.clock.after(0.3, None, self.look)
                return
        for index, shard in enumerate(self.world.shards):
            if not shard.alive and self._tell(coordinator, shard):
                self.world.shards[index] = SimShard(self.world, index)
        for index, replica in enumerate(self.replicas):
            if not replica.alive and self._tell(coordinator, replica):
                self.replicas[index] = SimReplica(self.world, index, self.slowness())
        self.clock.after(self.chance.uniform(0.1, 0.6), None, self.look)

    def _tell(self, coordinator: SimCoordinator, process: Member) -> bool:
        died = messages.MemberDied(
            role=process.role, index=process.index, pid=process.pid, exit_code=-9
        )
        try:
            coordinator.ask(died, lambda _: None)
        except Killed:
            return False
        return True


def run(
    seed: int, rules: Sandblaster = RULES, *, is_quiet: bool = False, stop: Stop = SETTINGS.stop
) -> World:
    """One job; it ends as `world.phase` says, or stands still."""
    chance = random.Random(seed)
    weather = Weather(
        loss=0.0 if is_quiet else chance.choice((0.0, 0.02, 0.1)),
        duplication=0.0 if is_quiet else chance.choice((0.0, 0.1, 0.3)),
        delay=chance.choice((0.01, 0.05, 0.2)),
    )
    world = World(
        Clockwork(seed, weather), BatchMethod(settings=replace(SETTINGS, stop=stop), rules=rules)
    )
    world.crashes = not is_quiet
    Storm(world, chance, is_quiet=is_quiet)
    _finish(world)
    return world


def resumed(stopped: World) -> World:
    """Another run that goes on from the last checkpoint of one that was stopped."""
    number = max(stopped.checkpoints)
    ledger = state.from_json(stopped.ledgers[number])
    first = resume.from_ledger(ledger, "checkpoint", problem.SHARDS)
    first.next_checkpoint = number + 1
    world = World(Clockwork(2, Weather()), METHOD, state.to_json(first), crashes=False)
    world.checkpoints = {number: stopped.checkpoints[number]}
    Storm(world, random.Random(2), is_quiet=True)
    _finish(world)
    return world


def stopped(after: float) -> World:
    """An undisturbed job that somebody stops so many seconds after its beginning."""
    world = World(Clockwork(1, Weather()), METHOD, crashes=False)
    Storm(world, random.Random(1), is_quiet=True)

    def stop() -> None:
        assert world.coordinator is not None
        world.coordinator.ask(messages.Stop(reason="enough"), lambda _: None)

    world.clock.after(after, None, stop)
    _finish(world)
    return world


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """Of a course, in its fourth iteration."""

    stage: Stage
    answers: int = 0
    """Shards that have carried out the order."""
    groups: int = 0
    """Groups with a result."""

    def is_now(self, world: World) -> bool:
        batch = None if world.coordinator is None else world.coordinator.state.batch
        if batch is None or batch.course.method.progress.iteration < _MOMENT_ITERATION:
            return False
        course = batch.course
        seen = (course.stage, len(course.answers), len(course.evaluation.winners))
        return batch.sent and seen == (self.stage, self.answers, self.groups)


def killed(victim: Role, moment: Moment) -> World:
    """A job of which only one process dies, at that moment."""
    world = World(Clockwork(1, Weather()), METHOD, crashes=False)
    storm = Storm(world, random.Random(1), is_quiet=True)
    while not moment.is_now(world):
        assert world.clock.step()
        assert not _is_over(world), "the moment never was"
    processes = {
        Role.COORDINATOR: world.coordinator,
        Role.SHARD: world.shards[0],
        Role.REPLICA: storm.replicas[0],
    }
    found = processes[victim]
    assert found is not None
    found.alive = False
    _finish(world)
    return world


def _finish(world: World) -> None:
    while world.clock.now < LONGEST and not _is_over(world):
        try:
            world.clock.step()
        except Killed:
            continue


def _is_over(world: World) -> bool:
    return world.phase in {Phase.COMPLETE, Phase.STOPPED, Phase.FAILED}
