"""Whole jobs of a batch method with a warm start, with faults from a seed, and what must hold."""

from dataclasses import replace

from disttrain.coordinator.decisions.turn import CoordinatorSide
from disttrain.coordinator.journal import batch_rules
from disttrain.coordinator.journal.batch_entries import CourseBegun
from disttrain.coordinator.journal.batch_state import Batch
from disttrain.coordinator.journal.state import Phase, StopReason
from disttrain.coordinator.settings import Settings
from disttrain.coordinator.strategies.downpour import Asynchronous
from disttrain.coordinator.strategies.sandblaster import BatchMethod
from disttrain.job.batch_optimizer import BatchOptimizer, Lbfgs
from disttrain.job.stop import Stop
from disttrain.job.strategies.sandblaster import Sandblaster
from disttrain.job.strategy_kind import Precision
from disttrain.sandblaster.names import PARAMETERS
from simulation.sandblaster import chaos as batch_chaos
from simulation.sandblaster import problem
from simulation.warm_start.members import WarmReplica, WarmShard, WarmSnapshot, reached
from simulation.warm_start.modelled import truth
from simulation.warm_start.modelled.chaos import Chaos, Plan

DATA = 28
"""Samples: the seven groups of the problem have one to seven."""
SAMPLES = 44
"""Of the warm start: a pass over the data, and more than half of another one."""
RULES = Sandblaster(
    precision=Precision.FLOAT64,
    portion_size=4,
    push_every_portions=1,
    optimizer=BatchOptimizer(lbfgs=Lbfgs(history=2, gradient_tolerance=0.0, change_tolerance=1e-3)),
)
METHOD = Settings(
    replicas=0,
    shards=problem.SHARDS,
    batch_size=4,
    seed=7,
    stop=Stop(iterations=1000),
    portion_size=4,
    checkpoint_seconds=3.0,
    lease_seconds=2.5,
    member_timeout_seconds=8.0,
)


class WarmChaos(Chaos):
    """One run."""

    def _stages(self) -> tuple[CoordinatorSide, ...]:
        method = replace(METHOD, replicas=self.chance.randint(1, 3))
        first = replace(method, stop=Stop(samples=SAMPLES), portion_size=8)
        alone = self.chance.choice((0, SAMPLES))
        return (
            Asynchronous(settings=first, warm_start_samples=alone),
            BatchMethod(settings=method, rules=RULES),
        )

    def _samples(self) -> int:
        return DATA

    def _plan_fault(self) -> None:
        """About half of them in the warm start, which takes some seconds."""
        kill = self.chance.choice((self._kill_replica, self._kill_coordinator, self._kill_shard))
        at = self.chance.uniform(0.3, self.chance.choice((3.0, 12.0)))
        self.world.clock.after(at, None, self.chance.choice((kill, self._pause_replica)))

    def _pause_replica(self) -> None:
        """Until it has lost its leases, or its place, to the others, or shorter."""
        process = self.world.processes[f"replica-{self.chance.randrange(self.settings.replicas)}"]
        seconds = self.chance.uniform(1.0, self.longest_pause())
        process.paused_until = self.world.clock.now + seconds

    def longest_pause(self) -> float:
        return self.chance.choice((8.0, 20.0))


def run(seed: int, shard_type: type[WarmShard] = WarmShard) -> WarmChaos:
    """The run of a seed."""
    plan = Plan(seed=seed, shard_type=shard_type, replica_type=WarmReplica)
    chaos = WarmChaos(plan)
    chaos.run()
    return chaos


def violations(chaos: WarmChaos) -> list[str]:
    """Everything that is wrong; empty when all is well."""
    state = chaos.coordinator.state
    found = [*chaos.world.violations, *_beginnings(chaos)]
    if state.phase is not Phase.COMPLETE or state.reason != StopReason.CONVERGED:
        return [*found, f"the job did not complete: {state.phase} {state.reason} {state.message}"]
    found += truth.applied_twice(chaos)
    found += truth.updates_lost(chaos)
    found += truth.model(chaos)
    if state.batch is None or _beginnings(chaos):
        return [*found, "the method did not go on to its end"]
    return [*found, *_method(chaos), *_samples(chaos, state.batch)]


def _samples(chaos: WarmChaos, batch: Batch) -> list[str]:
    """Each sample of the warm start was in the updates, and as often as is said."""
    any_shard, all_shards = truth.processings(chaos)
    state, processed = chaos.coordinator.state, len(all_shards)
    dies = any(life > 1 for life in chaos.shard_lives.values())
    # What a rollback took of a dead replica is done again, and not always the very same samples.
    processed = min(processed, SAMPLES) if dies else processed
    found = []
    if (processed, batch.before.samples) != (SAMPLES, SAMPLES):
        found.append(f"{processed} processed, {batch.before.samples} counted, not {SAMPLES}")
    if len([sample for sample in all_shards if sample[0] == 0]) != DATA:
        found.append("the first epoch of the warm start is not whole")
    repeated = sum(any_shard.values()) - len(any_shard)
    if not dies and not batch.returns and repeated != state.data.samples_repeated:
        found.append(f"{repeated} samples repeated, {state.data.samples_repeated} counted")
    return found


def _beginnings(chaos: WarmChaos) -> list[str]:
    count = sum(isinstance(entry, CourseBegun) for entry in chaos.coordinator.entries())
    return [f"the method began {count} times"] if count > 1 else []


def _method(chaos: WarmChaos) -> list[str]:
    """It began where the warm start had ended, and went as it goes without any fault."""
    (begun,) = (entry for entry in chaos.coordinator.entries() if isinstance(entry, CourseBegun))
    cut = chaos.world.checkpoints[begun.cut or 0]
    found = []
    for index, part in cut.items():
        shard = chaos.world.processes[f"shard-{index}"]
        assert isinstance(part, WarmSnapshot)
        assert isinstance(shard, WarmShard)
        if part.batch is not None:
            found.append(f"shard {index} was of the method when the warm start ended")
        if part.applied != shard.applied:
            found.append(f"shard {index} has other updates than at the end of the warm start")
    start = problem.whole([reached(cut[index].applied, index) for index in sorted(cut)])
    driver = batch_rules.driver(RULES, problem.GROUPS, METHOD.seed)
    if _final(chaos) != batch_chaos.serial(driver, start)[1]:
        found.append("the parameters are not those of an undisturbed run")
    return found


def _final(chaos: WarmChaos) -> bytes:
    parts = chaos.world.checkpoints[chaos.world.exported]
    vectors = []
    for _, part in sorted(parts.items()):
        assert isinstance(part, WarmSnapshot)
        assert part.batch is not None
        vectors.append(part.batch.vectors[PARAMETERS])
    return problem.whole(vectors).tobytes()
