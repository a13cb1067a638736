"""Jobs with a warm start and faults drawn from a seed: one switch, from a drained point."""

from collections.abc import Callable, Iterable
from contextlib import suppress

import pytest

from disttrain.coordinator.decisions import running, stages
from disttrain.coordinator.decisions.turn import CoordinatorSide, Turn
from disttrain.coordinator.journal.batch_entries import WarmStartDrained
from disttrain.coordinator.journal.job_entries import Restarted
from disttrain.coordinator.journal.state import State
from disttrain.parameter_server.deliveries import Decision
from disttrain.sandblaster.batch.shard import BatchShard
from disttrain.sandblaster.errors import UnknownVector
from disttrain.sandblaster.names import PARAMETERS, TRIAL
from simulation.clockwork import Process
from simulation.warm_start import runs
from simulation.warm_start.members import WarmShard
from simulation.warm_start.modelled import chaos
from simulation.warm_start.modelled.world import Push

BLOCK = 20
SEEDS = range(80)


@pytest.mark.parametrize("block", range(10))
def test_every_role_may_die_and_replicas_may_sleep_at_any_time(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        assert runs.violations(runs.run(seed)) == [], f"seed {seed}"


def found(word: str, shard_type: type[WarmShard] = WarmShard, seeds: Iterable[int] = SEEDS) -> bool:
    """Whether a seed fails with this word in what it says."""
    for seed in seeds:
        try:
            wrong = runs.violations(runs.run(seed, shard_type))
        except (AssertionError, KeyError):
            continue
        if any(word in violation for violation in wrong):
            return True
    return False


def _end_without_drain(turn: Turn, following: CoordinatorSide) -> None:
    state = turn.state
    if state.fencings or state.checkpoint is not None or not turn.holders_ready():
        return
    if state.warm_start.cut is None:
        turn.record(WarmStartDrained(checkpoint=state.next_checkpoint))
    if (state.last_checkpoint or 0) >= (state.warm_start.cut or 0):
        turn.stage += 1
        following.begin(turn, state.last_checkpoint)
    else:
        running.begin_checkpoint(turn)


def _end_at_an_older_checkpoint(turn: Turn, following: CoordinatorSide) -> None:
    if turn.state.last_checkpoint is None:
        _END(turn, following)
    elif turn.holders_ready() and turn.state.checkpoint is None:
        turn.stage += 1
        following.begin(turn, turn.state.last_checkpoint)


_END = stages._end
_RESTART = Restarted.apply


@pytest.mark.parametrize(
    ("mutant", "word", "seeds"),
    [
        # Few pauses are long enough, and not too long.
        (_end_without_drain, "after the warm start", range(195, 200)),
        (_end_at_an_older_checkpoint, "was not drained", SEEDS),
    ],
)
def test_a_switch_before_all_is_saved_is_found(
    monkeypatch: pytest.MonkeyPatch, mutant: Callable[[Turn], None], word: str, seeds: range
) -> None:
    monkeypatch.setattr(stages, "_end", mutant)
    monkeypatch.setattr(chaos, "LONGEST", 40.0)
    # Long enough to lose its leases, often too short to be taken for dead.
    monkeypatch.setattr(runs.WarmChaos, "longest_pause", lambda _: 12.0)
    assert found(word, seeds=seeds)


def test_a_second_switch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(entry: Restarted, state: State) -> None:
        _RESTART(entry, state)
        state.batch = None

    monkeypatch.setattr(Restarted, "apply", forgetful)
    monkeypatch.setattr(chaos, "LONGEST", 40.0)
    assert found("the method began 2 times")


def _spoil(batch: BatchShard) -> None:
    for name in (PARAMETERS, TRIAL):
        with suppress(UnknownVector):
            batch.vectors[name][0] -= 0.01


class ShardThatTakesLatePushes(WarmShard):
    """What the network brings after the switch changes the parameters, too."""

    def chunk(
        self, push: Push, chunk: int, process: Process, done: Callable[[Decision], None]
    ) -> None:
        if self.batch is not None:
            _spoil(self.batch)
        super().chunk(push, chunk, process, done)


def test_taking_pushes_after_the_switch_is_found() -> None:
    # A push must be so late that it comes after the switch.
    late = range(84, 90)
    assert found("not those of an undisturbed run", ShardThatTakesLatePushes, late)
