"""What a shard reports as lost when it begins, also for shards that are no more."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from builders import placements
from disttrain.holder.restoring import answers_for
from disttrain.holder.values import Notes, Values
from disttrain.launch.config import Supervisor
from disttrain.parameter_server import recovery, restoring
from disttrain.parameter_server.acknowledged import AcknowledgedFile, Count
from disttrain.parameter_server.deliveries import Delivered, SenderIncarnation
from disttrain.parameter_server.recovery import Losses
from disttrain.parameter_server.restoring import RestoredShard, tables_of
from disttrain.parameter_server.step_counts import StepCounts
from disttrain.state.placement import Range

NO_STEPS = StepCounts(Range(0, 0))
OLD, NEW = SenderIncarnation(0, 1), SenderIncarnation(0, 1001)

Table = dict[SenderIncarnation, Delivered]


def a_table(pushes: int, incarnation: SenderIncarnation = OLD) -> Table:
    return {incarnation: Delivered(pushes=pushes, sequence=pushes)}


def acknowledge(
    folder: Path, shard: int, pushes: int, incarnation: SenderIncarnation = OLD
) -> None:
    file = AcknowledgedFile(folder / f"acknowledged-{shard}.bin")
    file.store(incarnation, Count(pushes, pushes, file.count(incarnation).lost))
    file.close()


def a_checkpoint(shard: int, shards: int, tables: Mapping[int, Table]) -> RestoredShard:
    """What shard `shard` of `shards` restores of one made by the shards in `tables`."""
    previous = answers_for(shard, shards, len(tables))
    is_resharded = len(tables) != shards
    return RestoredShard(
        checkpoint=1,
        update_rule="sgd",
        values=Values(placements.a_share({placements.PARAMETERS: 0}, 64)),
        version=1,
        samples=1,
        delivered=restoring.merge(list(tables.values())) if is_resharded else tables[shard],
        is_resharded=is_resharded,
        previous={
            old: Notes(version=1, tables=tables_of(tables[old], NO_STEPS, {})) for old in previous
        },
    )


def lost(folder: Path, shard: int, shards: int, restored: RestoredShard | None) -> dict[int, int]:
    """By incarnation of the sender; as if it was killed before it told anybody, and came back."""
    for _ in range(2):
        losses = Losses(folder, shard, shards)
        losses.settle(restored)
    return {incarnation.incarnation: count.lost for incarnation, count in losses.counts().items()}


@pytest.mark.parametrize("shards", [1, 2, 3, 4, 5])
def test_every_loss_of_every_shard_is_counted_once_whatever_their_number_is_now(
    tmp_path: Path, shards: int
) -> None:
    tables = {0: a_table(10), 1: a_table(9), 2: a_table(8)}
    for previous in tables:
        acknowledge(tmp_path, previous, 15)
    found = [
        lost(tmp_path, shard, shards, a_checkpoint(shard, shards, tables))
        for shard in range(shards)
    ]
    assert sum(each.get(OLD.incarnation, 0) for each in found) == 5 + 6 + 7


def test_later_incarnations_still_tell_of_what_the_shards_that_are_no_more_have_lost(
    tmp_path: Path,
) -> None:
    tables = {0: a_table(10), 1: a_table(9), 2: a_table(8)}
    for previous in tables:
        acknowledge(tmp_path, previous, 15)
    assert lost(tmp_path, 0, 1, a_checkpoint(0, 1, tables)) == {1: 18}
    acknowledge(tmp_path, 0, 4, NEW)
    later = a_checkpoint(0, 1, {0: restoring.merge(list(tables.values())) | a_table(3, NEW)})
    assert lost(tmp_path, 0, 1, later) == {1: 18, 1001: 1}


def test_without_any_checkpoint_all_is_lost(tmp_path: Path) -> None:
    acknowledge(tmp_path, 0, 15)
    assert lost(tmp_path, 0, 2, None) == {1: 15}
    acknowledge(tmp_path, 0, 2)
    assert lost(tmp_path, 0, 2, None) == {1: 17}


def test_of_several_shards_the_pushes_are_those_of_all_and_the_samples_those_of_any() -> None:
    states = [Delivered(sequence=n, pushes=n, samples=8 * n, lease_offset=n) for n in (3, 2)]
    whole = restoring.merge([{OLD: state} for state in states])[OLD]
    assert (whole.sequence, whole.pushes, whole.lease_offset, whole.samples) == (2, 2, 2, 24)
    partly = restoring.merge([{OLD: states[0]}, {}])[OLD]
    assert (partly.sequence, partly.pushes, partly.samples) == (0, 0, 24)


@pytest.mark.parametrize(
    ("supervisor", "said"),
    [(Supervisor.LAUNCHER, "updates lost"), (Supervisor.NODE, "updates lost, at least")],
)
def test_a_loss_is_told_as_exactly_as_it_is_known(
    caplog: pytest.LogCaptureFixture, supervisor: Supervisor, said: str
) -> None:
    recovery.log_lost({SenderIncarnation(1, 2): 3}, supervisor)
    (record,) = caplog.records
    assert record.getMessage() == said
