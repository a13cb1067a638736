"""The simulator finds what it is for: each promise broken on purpose makes some seed fail."""

from collections.abc import Callable

import pytest

from disttrain.coordinator.decisions import closing, membership, news, running
from disttrain.coordinator.decisions.turn import Turn
from disttrain.coordinator.journal.state import Phase
from disttrain.coordinator.journal.totals import Totals
from disttrain.coordinator.leases import intervals
from disttrain.coordinator.leases.data_ledger import DataLedger, OpenLease, PortionAccount
from disttrain.coordinator.protocol.fields import Lease, LostUpdates
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
from simulation import chaos, truth
from simulation.sim_shard import SimShard

SEEDS = range(60)


class TakesDuplicates(Deliveries):
    """A chunk that was applied is applied again."""

    def decide(self, sender: int, incarnation: int, name: ChunkName) -> Decision:
        decision = super().decide(sender, incarnation, name)
        is_again = decision is Decision.DUPLICATE and name.chunk == 0
        return Decision.APPLY if is_again else decision


class NeverFences(Deliveries):
    """A fenced life may go on."""

    def fence(self, sender: int, incarnation: int) -> Delivered:
        return self.of(sender, incarnation)

    def admit(self, sender: int, incarnation: int) -> None:
        self.admitted[sender] = incarnation

    def standing(self, sender: int, incarnation: int) -> Decision:
        del incarnation
        return Decision.APPLY if sender in self.admitted else Decision.UNKNOWN_SENDER


class ShardThatTakesDuplicates(SimShard):
    deliveries_type = TakesDuplicates


class ShardThatNeverFences(SimShard):
    deliveries_type = NeverFences


def _found(
    *,
    shard_type: type[SimShard] = SimShard,
    word: str,
    shard_faults: bool = False,
    target: bool = False,
    seeds: range = SEEDS,
) -> bool:
    """Whether a seed fails with this word in what it says."""
    for seed in seeds:
        try:
            run = chaos.run(seed, shard_faults=shard_faults, target=target, shard_type=shard_type)
        except (AssertionError, KeyError):
            continue
        if any(word in violation for violation in truth.violations(run)):
            return True
    return False


def test_applying_duplicates_is_found() -> None:
    assert _found(shard_type=ShardThatTakesDuplicates, word="twice")


def test_admitting_the_fenced_is_found() -> None:
    assert _found(shard_type=ShardThatNeverFences, word="after the fence")


def test_a_list_that_is_told_only_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "LONGEST", 120.0)
    monkeypatch.setattr(news, "since", lambda turn, role, _: news._always(turn, role))
    assert _found(word="did not complete")


def _all_at_once(coverage: Coverage, *_: object) -> frozenset[SenderLife]:
    return frozenset(coverage._over)


def test_forgetting_lives_that_no_checkpoint_covers_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Coverage, "cut", _all_at_once)
    # A shard must die while a checkpoint is written, before which it forgot.
    assert _found(word="updates lost", shard_faults=True, seeds=range(420, 430))


def _forget_the_rest(_: DataLedger, held: OpenLease) -> None:
    held.lost = True


def _count_no_repeats(ledger: DataLedger, lease: Lease, first: int, end: int) -> None:
    epoch = ledger.epochs[lease.epoch]
    if lease.portion not in epoch.finished:
        account = epoch.accounts.setdefault(lease.portion, PortionAccount())
        account.touched = intervals.union(account.touched, first, end)


def _settle_at_the_highest(ledger: DataLedger, *arguments: object) -> None:
    member, _, highest = arguments
    _SETTLE(ledger, member, highest, highest)  # type: ignore[arg-type]


_SETTLE = DataLedger.settle


@pytest.mark.parametrize(
    ("method", "mutant", "word"),
    [
        ("_requeue_rest", _forget_the_rest, "did not complete"),
        ("_touch", _count_no_repeats, "samples repeated"),
        ("settle", _settle_at_the_highest, "processed"),
    ],
)
def test_wrong_accounts_are_found(
    monkeypatch: pytest.MonkeyPatch, method: str, mutant: Callable[..., None], word: str
) -> None:
    monkeypatch.setattr(DataLedger, method, mutant)
    monkeypatch.setattr(chaos, "LONGEST", 120.0)
    assert _found(word=word)


def test_an_end_at_a_target_that_the_model_misses_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closing, "_go_on", lambda turn: turn.go_to(Phase.COMPLETE))
    assert _found(word="which its model misses", target=True)


def test_an_evaluation_that_dies_with_its_replica_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "_evaluate_if_due", _only_new_ones)
    assert _found(word="nobody does an evaluation")


_EVALUATE_IF_DUE = running._evaluate_if_due


def _only_new_ones(turn: Turn) -> None:
    if not turn.state.evaluating:
        _EVALUATE_IF_DUE(turn)


def test_a_coordinator_that_asks_no_shard_about_the_dead_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(membership, "_fence", lambda *_: None)
    monkeypatch.setattr(chaos, "LONGEST", 120.0)
    assert _found(word="did not complete")


def test_calling_lost_what_comes_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "after_push", _without_doubt)
    # A shard must die between an answer that is lost on the way and its repetition.
    assert _found(word="updates lost", shard_faults=True, seeds=range(284, 294))


def _without_doubt(count: Count, delivered: Delivered) -> Count:
    return Count(delivered.pushes, delivered.sequence, count.lost)


def test_adding_reports_of_the_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Totals, "set_updates_lost", _add_lost)
    assert _found(word="updates lost", shard_faults=True)


def _add_lost(kept: Totals, shard: int, sender: LostUpdates) -> None:
    key = f"{shard}.{sender.index}"
    kept.updates_lost[key] = kept.updates_lost.get(key, 0) + sender.lost
