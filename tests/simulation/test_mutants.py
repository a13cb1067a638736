"""The simulator finds what it is for: each promise broken on purpose makes some seed fail."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from disttrain.coordinator.decisions import closing, membership, news, running
from disttrain.coordinator.decisions.transaction import Transaction
from disttrain.coordinator.journal.totals import Totals
from disttrain.coordinator.leases import intervals
from disttrain.coordinator.leases.data_ledger import DataLedger, OpenLease, PortionAccount
from disttrain.coordinator.phases import Phase
from disttrain.coordinator.protocol.control import ControlConnection
from disttrain.coordinator.protocol.fields import Lease, LostUpdates
from disttrain.parameter_server import acknowledged
from disttrain.parameter_server.acknowledged import Count
from disttrain.parameter_server.client import UploadTask
from disttrain.parameter_server.deliveries import (
    ChunkName,
    Coverage,
    Decision,
    Delivered,
    Deliveries,
    SenderIncarnation,
)
from disttrain.transport.header import Verb
from disttrain.transport.interface import Message
from simulation import chaos, truth
from simulation.world import Incarnation

SEEDS = range(60)


def _found(
    *, word: str, seeds: Iterable[int] = SEEDS, shard_faults: bool = False, **plan: Any
) -> bool:
    return truth.is_found(word, seeds, shard_faults=shard_faults, **plan)


_DECIDE = Deliveries.decide


def _take_duplicates(table: Deliveries, sender: int, incarnation: int, name: ChunkName) -> Decision:
    decision = _DECIDE(table, sender, incarnation, name)
    is_again = decision is Decision.DUPLICATE and name.chunk == 0
    return Decision.APPLY if is_again else decision


def test_applying_duplicates_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deliveries, "decide", _take_duplicates)
    assert _found(word="twice")


def _admit(table: Deliveries, sender: int, incarnation: int) -> None:
    table.admitted[sender] = incarnation


def _may_push(table: Deliveries, sender: int, _: int) -> Decision:
    return Decision.APPLY if sender in table.admitted else Decision.UNKNOWN_SENDER


def test_admitting_the_fenced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deliveries, "fence", Deliveries.of)
    monkeypatch.setattr(Deliveries, "admit", _admit)
    monkeypatch.setattr(Deliveries, "standing", _may_push)
    # What the coordinator says to the fenced ends them, too, mostly before they push again.
    monkeypatch.setattr(ControlConnection, "_check_admission", lambda *_: None)
    monkeypatch.setattr(chaos, "LONGEST", 100.0)
    # A replica must sleep for longer than any that is waited for.
    assert _found(word="after the fence", faults=16, seconds=30.0)


def _end_with_any_answer(task: UploadTask, message: Message) -> None:
    task.is_done = message.header.verb == Verb.UPLOADED


def test_an_upload_that_ends_with_the_answer_to_another_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(UploadTask, "take", _end_with_any_answer)
    monkeypatch.setattr(chaos, "LONGEST", 120.0)
    assert _found(word="did not complete", shard_faults=True, seeds=range(30, 60))


def test_a_list_that_is_told_only_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "LONGEST", 120.0)
    monkeypatch.setattr(news, "since", lambda transaction, role, _: news._always(transaction, role))
    assert _found(word="did not complete")


def _all_at_once(coverage: Coverage, *_: object) -> frozenset[SenderIncarnation]:
    return frozenset(coverage._over)


def test_forgetting_incarnations_that_no_checkpoint_covers_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Coverage, "cut", _all_at_once)
    run = chaos.Chaos(chaos.Plan(seed=1, is_quiet=True, more=("spec.replicas.count=3",)))

    def kill_a_replica(_: Incarnation) -> None:
        run.members["replica-0"].kill()
        begun = run.coordinator.state.next_checkpoint
        run.at(lambda state: state.next_checkpoint > begun and not state.fencings, kill_a_shard)

    def kill_a_shard(_: Incarnation) -> None:
        """While it writes the checkpoint, before which it has forgotten what nothing covers."""
        run.time.after(0.1, run.members["shard-0"].kill)

    run.at(lambda state: state.data.samples_done >= 16, kill_a_replica)
    assert any("updates lost" in violation for violation in truth.violations(run.run()))


def _forget_the_rest(_: DataLedger, held: OpenLease) -> None:
    held.lost = True


def _count_no_repeats(ledger: DataLedger, lease: Lease, first: int, end: int) -> None:
    epoch = ledger.epochs[lease.epoch]
    if lease.portion not in epoch.finished:
        account = epoch.accounts.setdefault(lease.portion, PortionAccount())
        account.touched = intervals.union(account.touched, first, end)


def _reconcile_at_the_highest(ledger: DataLedger, *arguments: object) -> None:
    member, _, highest = arguments
    _RECONCILE(ledger, member, highest, highest)  # type: ignore[arg-type]


_RECONCILE = DataLedger.reconcile


@pytest.mark.parametrize(
    ("method", "mutant", "word", "seeds"),
    [
        ("_requeue_rest", _forget_the_rest, "did not complete", SEEDS),
        ("_touch", _count_no_repeats, "samples repeated", SEEDS),
        # A replica must die between two shards' answers to its push, and leave nothing to do again.
        ("reconcile", _reconcile_at_the_highest, "processed", (69,)),
    ],
)
def test_wrong_accounts_are_found(
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    mutant: Callable[..., None],
    word: str,
    seeds: Iterable[int],
) -> None:
    monkeypatch.setattr(DataLedger, method, mutant)
    monkeypatch.setattr(chaos, "LONGEST", 120.0)
    assert _found(word=word, seeds=seeds, faults=8)


def test_an_end_at_a_target_that_the_model_misses_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closing, "_go_on", lambda transaction: transaction.go_to(Phase.COMPLETE))
    assert _found(word="which its model misses", target=True)


def test_an_evaluation_that_dies_with_its_replica_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "_evaluate_if_due", _only_new_ones)
    assert _found(word="nobody does an evaluation")


_EVALUATE_IF_DUE = running._evaluate_if_due


def _only_new_ones(transaction: Transaction) -> None:
    if not transaction.state.evaluating:
        _EVALUATE_IF_DUE(transaction)


def test_a_coordinator_that_asks_no_shard_about_the_dead_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(membership, "_fence", lambda *_: None)
    monkeypatch.setattr(chaos, "LONGEST", 120.0)
    assert _found(word="did not complete")


def test_calling_lost_what_comes_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledged, "after_push", _without_doubt)
    # A shard must die between an answer that is lost on the way and its repetition.
    assert _found(word="updates lost", shard_faults=True, faults=12, seeds=(60,))


def _without_doubt(count: Count, delivered: Delivered) -> Count:
    return Count(delivered.pushes, delivered.sequence, count.lost)


def test_adding_reports_of_the_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Totals, "set_updates_lost", _add_lost)
    assert _found(word="updates lost", shard_faults=True)


def _add_lost(kept: Totals, shard: int, sender: LostUpdates) -> None:
    key = f"{shard}.{sender.index}"
    kept.updates_lost[key] = kept.updates_lost.get(key, 0) + sender.lost
