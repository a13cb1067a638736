"""The simulator finds what it is for: each promise broken on purpose makes some seed fail."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from disttrain.coordinator.decisions import running, steering
from disttrain.coordinator.decisions.transaction import CoordinatorSide, Transaction
from disttrain.coordinator.journal.batch_entries import WarmStartDrained
from disttrain.coordinator.journal.job_entries import Restarted
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.protocol.commands import NumberedCommand, Perform
from disttrain.coordinator.protocol.commands import Result as ShardResult
from disttrain.parameter_server.holder_side import Answers
from disttrain.parameter_server.shard import Shard
from disttrain.sandblaster.batch import groups
from disttrain.sandblaster.batch.groups import Evaluation, Result, Winner, Worker
from disttrain.sandblaster.batch.programs import ProgramLog
from disttrain.sandblaster.batch.staging import Chunk, Staging
from disttrain.sandblaster.kernels import Array
from disttrain.sandblaster.operations import PARAMETERS
from disttrain.transport.header import Header, Verb
from simulation import chaos, truth
from simulation.chaos import Chaos, Plan
from simulation.jobs import Kind
from simulation.sim_shard import SimShard
from simulation.world import Incarnation, as_any

SEEDS = range(40)
Runner = Callable[[NumberedCommand], ShardResult | None]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is broken may stand still."""
    monkeypatch.setattr(chaos, "LONGEST", 120.0)


def test_committing_two_winners_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    second: dict[int, list[int]] = {}
    winners = groups.winners

    def take(evaluation: Evaluation, worker: Worker, result: Result) -> bool:
        attempt = evaluation.attempts.pop(result.attempt, None)
        if attempt is None or attempt.worker != worker or result.shards != evaluation.shards:
            return False
        if attempt.group in evaluation.winners:
            second.setdefault(evaluation.number, []).append(attempt.number)
            return True
        evaluation.winners[attempt.group] = Winner(
            attempt=attempt.number, loss_sum=result.loss_sum, samples=result.samples
        )
        return True

    monkeypatch.setattr(groups, "take", take)
    monkeypatch.setattr(groups, "winners", lambda one: (*winners(one), *second.pop(one.number, [])))

    assert truth.is_found("attempts do not make evaluation", SEEDS, kind=Kind.BATCHES, faults=4)


def test_committing_before_all_is_staged_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Staging.stage

    def hasty(self: Staging, chunk: Chunk, values: Array) -> bool:
        stage(self, chunk, values)
        return True

    monkeypatch.setattr(Staging, "stage", hasty)

    assert truth.is_found("are not staged here", SEEDS, kind=Kind.BATCHES, faults=4)


@pytest.mark.parametrize("trusts", [False, True])
def test_accepting_an_old_coordinator_is_found(
    monkeypatch: pytest.MonkeyPatch, *, trusts: bool
) -> None:
    old: dict[SimShard, tuple[int, NumberedCommand]] = {}
    carry_out = SimShard._carry_out

    def twice(shard: SimShard, to_runner: Runner, numbered: NumberedCommand) -> ShardResult | None:
        result = carry_out(shard, to_runner, numbered)
        if isinstance(numbered.order, Perform):
            coordinator = numbered.order.order.coordinator
            before, late = old.get(shard, (coordinator, numbered))
            if before < coordinator:
                # What an earlier incarnation has ordered last comes again.
                carry_out(shard, to_runner, late)
            old[shard] = coordinator, numbered
        return result

    monkeypatch.setattr(SimShard, "_carry_out", twice)
    if trusts:
        monkeypatch.setattr(ProgramLog, "check", lambda *_: None)
    run = Chaos(Plan(seed=1, kind=Kind.BATCHES, is_quiet=True))
    run.at(_is_under_way, lambda coordinator: coordinator.die())

    violations = truth.violations(run.run())

    assert any("obeyed an old" in violation for violation in violations) == trusts
    assert max(coordinator for coordinator, _ in old.values()) > 1


def _is_under_way(state: State) -> bool:
    """A command that some shard has carried out, and that the next incarnation gives again."""
    return state.batch is not None and 0 < len(state.batch.course.answers) < 2


def _end_without_drain(transaction: Transaction, following: CoordinatorSide) -> None:
    state = transaction.state
    if state.fencings or state.checkpoint is not None or not transaction.holders_ready():
        return
    if state.warm_start.cut is None:
        transaction.record(WarmStartDrained(checkpoint=state.next_checkpoint))
    if (state.last_checkpoint or 0) >= (state.warm_start.cut or 0):
        transaction.stage += 1
        following.begin(transaction, state.last_checkpoint)
    else:
        running.begin_checkpoint(transaction)


def _end_at_an_older_checkpoint(transaction: Transaction, following: CoordinatorSide) -> None:
    if transaction.state.last_checkpoint is None:
        _END(transaction, following)
    elif transaction.holders_ready() and transaction.state.checkpoint is None:
        transaction.stage += 1
        following.begin(transaction, transaction.state.last_checkpoint)


_END = steering._end
_RESTART = Restarted.apply
_HANDLE = Shard.handle


def _found(
    word: str, moment: Callable[[State], bool], act: Callable[[Chaos, Incarnation], None]
) -> bool:
    """Whether a job to which this is done at a moment says the word."""
    more = ("spec.replicas.count=3",)
    for seed in range(5):
        run = Chaos(Plan(seed=seed, kind=Kind.AFTER_DOWNPOUR, is_quiet=True, more=more))
        run.at(moment, partial(act, run))
        with suppress(AssertionError, KeyError):
            if any(word in violation for violation in truth.violations(run.run())):
                return True
    return False


def _pause_a_replica(seconds: float) -> Callable[[Chaos, Incarnation], None]:
    return lambda run, _: run.members["replica-0"].pause(seconds)


def _has_begun(state: State) -> bool:
    """The warm start; a replica is in the midst of a step."""
    return state.data.samples_done >= 8


@pytest.mark.parametrize(
    ("mutant", "word"),
    [
        (_end_without_drain, "is not for a shard"),
        (_end_at_an_older_checkpoint, "updates lost"),
    ],
)
def test_a_switch_before_all_is_saved_is_found(
    monkeypatch: pytest.MonkeyPatch, mutant: Callable[[Transaction], None], word: str
) -> None:
    monkeypatch.setattr(steering, "_end", mutant)
    # Long enough to lose its leases, too short to be taken for dead.
    assert _found(word, _has_begun, _pause_a_replica(9.0))


def test_a_second_switch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(entry: Restarted, state: State) -> None:
        _RESTART(entry, state)
        state.batch = None

    monkeypatch.setattr(Restarted, "apply", forgetful)
    words = "the method began 2 times"
    assert _found(
        words, lambda state: state.batch is not None, lambda _, incarnation: incarnation.die()
    )


@pytest.mark.parametrize("takes", [False, True])
def test_taking_pushes_after_the_switch_is_found(
    monkeypatch: pytest.MonkeyPatch, *, takes: bool
) -> None:
    late: dict[Shard, tuple[Header, bytes]] = {}

    def handle(shard: Shard, header: Header, payload: memoryview) -> Answers:
        if shard._to_come and header.verb == Verb.PUSH:
            late[shard] = header, bytes(payload)
        elif not shard._to_come and shard in late:
            # The network brings a copy of the last one; its answers are lost.
            again, values = late.pop(shard)
            list(_HANDLE(shard, again, memoryview(values)))
            if takes:
                as_any(shard.state.values).batch[PARAMETERS][0] -= 0.01
        return _HANDLE(shard, header, payload)

    monkeypatch.setattr(Shard, "handle", handle)
    words = "not those of an undisturbed run"
    assert _found(words, lambda _: False, lambda *_: None) == takes
    assert late == {}
