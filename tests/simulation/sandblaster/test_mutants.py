"""The simulator finds what it is for: each promise broken on purpose makes some seed fail."""

from collections.abc import Callable

import pytest

from disttrain.sandblaster.batch import groups
from disttrain.sandblaster.batch.groups import Evaluation, Result, Winner, Worker
from disttrain.sandblaster.batch.orders import Order, OrderLog, Performed
from disttrain.sandblaster.batch.staging import Chunk, Staging
from disttrain.sandblaster.kernels import Array
from simulation.sandblaster import chaos

SEEDS = range(100)


def found(word: str) -> bool:
    """Whether a seed fails with this word in what it says."""
    return any(word in violation for seed in SEEDS for violation in chaos.run(seed).violations)


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

    assert found("attempts do not make evaluation")


def test_committing_before_all_is_staged_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Staging.stage

    def hasty(self: Staging, chunk: Chunk, values: Array) -> bool:
        stage(self, chunk, values)
        return True

    monkeypatch.setattr(Staging, "stage", hasty)

    assert found("are not staged here")


def test_accepting_an_old_coordinator_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    carry_out = OrderLog.carry_out

    def trusting(
        self: OrderLog, order: Order, perform: Callable[[Order], tuple[float, ...]]
    ) -> Performed:
        self.coordinator = 0
        return carry_out(self, order, perform)

    monkeypatch.setattr(OrderLog, "carry_out", trusting)

    assert found("obeyed an old coordinator")
