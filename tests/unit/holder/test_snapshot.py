"""A checkpoint written while updates go on is of one version, and comes back as it was."""

import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from builders import downpour_shards, placements
from builders.checkpoints import commit_cuts, parts_at
from disttrain.checkpoint import names, part_file, stores
from disttrain.checkpoint.errors import Corrupt, WrongSnapshot
from disttrain.holder import writing
from disttrain.holder.restoring import Wanted, newest
from disttrain.holder.values import Table
from disttrain.holder.writing import Cut
from disttrain.job.update_rules.adagrad import Adagrad
from disttrain.job.update_rules.sgd import Sgd
from disttrain.parameter_server import reporting, restoring
from disttrain.parameter_server.acknowledged import Count
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.shard import Shard
from disttrain.state.placement import TRAINED, Placement
from disttrain.state.share import Share
from disttrain.state.vector import Vector
from disttrain.transport.header import EMPTY, ElementType, Role, Verb

ELEMENTS, CHUNK_BYTES = 10_000, 4096
CHUNK = CHUNK_BYTES // 4
SENDER = SenderIncarnation(0, 1)
SUM_OF_SQUARES = placements.PARAMETERS.beside("sum_of_squares")


def a_placement(holders: int = 1) -> Placement:
    return placements.a_placement({placements.PARAMETERS: ELEMENTS}, holders)


def a_shard(config: Sgd | Adagrad, index: int = 0, shards: int = 1) -> Shard:
    state = ShardState(index=index, incarnation=1)
    shard = downpour_shards.build(state, config)
    shard.configure(a_placement(shards), CHUNK_BYTES)
    shard.admit(SENDER)
    state.is_initialised = True
    return shard


def push(shard: Shard, sequence: int, chunks: Sequence[int] | None = None) -> None:
    """Adds 1 to every coordinate, or to those of some chunks."""
    values = shard.state.values
    assert values is not None
    count = values.share.num_chunks(placements.PARAMETERS)
    for chunk in range(count) if chunks is None else chunks:
        part = values.share.chunk(placements.PARAMETERS, chunk)
        header = EMPTY._replace(
            verb=Verb.PUSH,
            role=Role.REPLICA,
            incarnation=1,
            receiver_incarnation=shard.state.incarnation,
            sequence=sequence,
            vector=TRAINED,
            element_type=ElementType.FLOAT32,
            chunk=chunk,
            chunks=count,
            first=part.first,
            count=part.count,
            scale=1.0,
            samples=32,
            lease=1,
            lease_offset=32 * sequence,
        )
        payload = memoryview(torch.full((part.count,), -1.0).numpy()).cast("B")  # type: ignore[arg-type]
        for answer in shard.handle(header, payload):
            assert answer.header.verb == Verb.PUSHED


def take_cut(shard: Shard, number: int = 1) -> Cut:
    assert shard.state.values is not None
    made = writing.cut(number, shard.state.values, shard.state.notes())
    shard.state.cut = made
    return made


def wanted(shard: int = 0, shards: int = 1, rule: str = "sgd") -> Wanted:
    names_of_state = ("sum_of_squares",) if rule == "adagrad" else ()
    return Wanted(
        share=Share(a_placement(shards), shard, CHUNK_BYTES),
        makers={rule: downpour_shards.with_state(names_of_state)},
        tables=restoring.TABLES,
    )


@pytest.mark.parametrize("config", [Sgd(learning_rate=1.0), Adagrad(learning_rate=1.0)])
@pytest.mark.parametrize("seed", range(5))
def test_the_picture_is_of_one_moment(config: Sgd | Adagrad, seed: int) -> None:
    """Chunks are read in between updates, in every order that chance gives."""
    chance = random.Random(seed)
    shard = a_shard(config)
    push(shard, 1)
    push(shard, 2)
    push(shard, 3, chunks=[0, 1, 2, 3])
    values = shard.state.values
    assert values is not None
    expected = [
        *(v.clone() for v in values.vectors.values()),
    ]
    made = take_cut(shard)
    pieces = (piece for content in writing.contents(made)[:-1] for piece in content.pieces)
    content = bytes(b"".join(bytes(piece) for piece in between(pieces, shard, chance)))
    assert content == b"".join(tensor.numpy().tobytes() for tensor in expected)
    assert restoring.delivered_of(made.notes)[SENDER].next_chunk == 4
    assert made.notes.version == 2


def between(
    pieces: "Iterator[bytes | memoryview]", shard: Shard, chance: random.Random
) -> "Iterator[bytes | memoryview]":
    count = -(-ELEMENTS // CHUNK)
    sequence, chunk = 3, 4
    for piece in pieces:
        for _ in range(chance.choice([0, 0, 1, 3, 12])):
            push(shard, sequence, chunks=[chunk])
            sequence, chunk = (sequence, chunk + 1) if chunk + 1 < count else (sequence + 1, 0)
        yield piece


def test_without_copies_the_picture_would_be_torn() -> None:
    """The test above can fail: nobody tells the snapshot of the changes here."""
    shard = a_shard(Sgd(learning_rate=1.0))
    made = take_cut(shard)
    shard.state.cut = None
    push(shard, 1)
    first = bytes(next(iter(writing.contents(made)[0].pieces)))
    assert first != torch.zeros(CHUNK).numpy().tobytes()


def test_a_file_written_by_the_thread_is_of_one_version(tmp_path: Path) -> None:
    shard = a_shard(Sgd(learning_rate=1.0))
    push(shard, 1)
    before = set(threading.enumerate())
    writer = writing.Writer(take_cut(shard), parts_at(tmp_path))
    sequence = 2
    while not writer.is_over:
        push(shard, sequence)
        sequence += 1
    assert writer.wait(10)
    assert writer.cut.error is None
    with part_file.opened(tmp_path / names.part_file(0)) as file:
        content = torch.frombuffer(
            bytearray(file.read_all(str(placements.PARAMETERS))), dtype=torch.float32
        )
        assert file.metadata["version"] == "1"
    assert torch.equal(content, torch.ones(ELEMENTS))
    assert len(set(threading.enumerate()) - before) <= 1, "its own, and none for each push"


def test_a_full_disk_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    shard = a_shard(Sgd(learning_rate=1.0))
    writer = writing.Writer(take_cut(shard), parts_at(tmp_path / "no-such-folder"))
    assert writer.wait(10)
    assert writer.cut.error is not None
    push(shard, 1)
    assert shard.state.count == 1


def test_what_comes_back_goes_on_at_the_chunk_after_the_snapshot(tmp_path: Path) -> None:
    shard = a_shard(Adagrad(learning_rate=1.0))
    push(shard, 1)
    push(shard, 2, chunks=[0, 1])
    checkpoint = commit_cuts(tmp_path, [take_cut(shard)], "adagrad")
    push(shard, 2, chunks=range(2, 10))
    again = a_shard(Adagrad(learning_rate=1.0))
    restored = restoring.restore([checkpoint], wanted(rule="adagrad"))
    assert restored is not None
    again.restore(restored)
    assert (again.state.count, again.state.samples) == (1, 32)
    push(again, 2, chunks=range(2, 10))
    before, after = shard.state.values, again.state.values
    assert before is not None
    assert after is not None
    assert torch.equal(before.vectors[placements.PARAMETERS], after.vectors[placements.PARAMETERS])
    assert torch.equal(before.vectors[SUM_OF_SQUARES], after.vectors[SUM_OF_SQUARES])


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 3)])
def test_a_checkpoint_comes_back_into_another_number_of_shards(
    before: int, after: int, tmp_path: Path
) -> None:
    shards = [a_shard(Adagrad(learning_rate=1.0), index, before) for index in range(before)]
    for number, shard in enumerate(shards):
        for sequence in range(1, 3 + number):
            push(shard, sequence)
    whole = [
        torch.cat([part_of(shard, vector) for shard in shards])
        for vector in (placements.PARAMETERS, SUM_OF_SQUARES)
    ]
    checkpoint = commit_cuts(tmp_path, [take_cut(shard) for shard in shards], "adagrad")
    restored = [
        restoring.restore([checkpoint], wanted(index, after, "adagrad")) for index in range(after)
    ]
    values = [part.values for part in restored if part is not None]
    assert torch.equal(torch.cat([v.vectors[placements.PARAMETERS] for v in values]), whole[0])
    assert torch.equal(torch.cat([v.vectors[SUM_OF_SQUARES] for v in values]), whole[1])
    assert restored[0] is not None
    assert restored[0].delivered[SENDER].pushes == 2


def test_a_table_of_an_earlier_version_has_0_in_the_columns_that_it_lacks(tmp_path: Path) -> None:
    shard = a_shard(Sgd(learning_rate=1.0))
    for sequence in range(1, 4):
        push(shard, sequence)
    made = take_cut(shard)
    now = restoring.delivered_of(made.notes)[SENDER]
    assert (now.staleness_count, now.is_stale, now.pushes) == (0, 0, 3)
    table = made.notes.tables["deliveries"]
    assert table.columns[-2:] == ("staleness_count", "is_stale")
    # It may have others in another order, too.
    swapped = [1, 0, *range(2, len(table.columns) - 2)]
    earlier = Table(
        columns=tuple(table.columns[place] for place in swapped),
        rows=[[row[place] for place in swapped] for row in table.rows],
    )
    made.notes = replace(made.notes, tables={"deliveries": earlier})

    restored = restoring.restore([commit_cuts(tmp_path, [made])], wanted())

    assert restored is not None
    assert restored.delivered == {SENDER: now}


@pytest.mark.parametrize("columns", [("sender", "of_tomorrow"), ("sender", "sender"), ()])
def test_a_table_of_a_later_version_is_refused(tmp_path: Path, columns: tuple[str, ...]) -> None:
    made = take_cut(a_shard(Sgd(learning_rate=1.0)))
    rows = [list(range(len(columns)))]
    later = Table(columns=columns, rows=rows)
    made.notes = replace(made.notes, tables={"deliveries": later})
    with pytest.raises(Corrupt, match="columns of another version"):
        restoring.restore([commit_cuts(tmp_path, [made])], wanted())


def part_of(shard: Shard, vector: Vector) -> torch.Tensor:
    values = shard.state.values
    assert values is not None
    return values.vectors[vector]


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    shard = a_shard(Sgd(learning_rate=1.0))
    push(shard, 1)
    commit_cuts(tmp_path, [take_cut(shard)], number=1)
    push(shard, 2)
    second = commit_cuts(tmp_path, [take_cut(shard)], number=2)
    file = second.path / names.part_file(0)
    content = bytearray(file.read_bytes())
    content[-CHUNK_BYTES] ^= 1
    file.write_bytes(content)
    (candidates, damaged), wants = newest(stores.in_folder(tmp_path), "job", None), wanted()
    restored = restoring.restore(candidates, wants, damaged)
    assert restored is not None
    assert (restored.checkpoint, restored.version) == (1, 1)
    told = reporting.restored_report(restored, {})
    assert told is not None
    assert told.damaged == (2,)
    with pytest.raises(Corrupt):
        restoring.restore([second], wanted())


def test_checkpoints_without_a_good_manifest_are_told_and_no_reason_to_begin_anew(
    tmp_path: Path,
) -> None:
    shard = a_shard(Sgd(learning_rate=1.0))
    folders = [commit_cuts(tmp_path, [take_cut(shard)], number=each).path for each in (1, 2, 3, 4)]
    for folder in (folders[0], folders[2], folders[3]):
        (folder / names.MANIFEST).write_bytes(b"")
    candidates, damaged = newest(stores.in_folder(tmp_path), "job", None)
    restored = restoring.restore(candidates, wanted(), damaged)
    assert restored is not None
    assert (restored.checkpoint, restored.damaged) == (2, (4, 3))

    (folders[1] / names.MANIFEST).unlink()
    candidates, damaged = newest(stores.in_folder(tmp_path), "job", None)
    with pytest.raises(Corrupt, match="checkpoint 4: its manifest cannot be read"):
        restoring.restore(candidates, wanted(), damaged)


def test_a_checkpoint_of_another_rule_is_refused(tmp_path: Path) -> None:
    checkpoint = commit_cuts(tmp_path, [take_cut(a_shard(Sgd(learning_rate=1.0)))])
    with pytest.raises(WrongSnapshot, match="adagrad"):
        restoring.restore([checkpoint], wanted(rule="adagrad"))


def test_another_jobs_checkpoints_are_not_taken(tmp_path: Path) -> None:
    commit_cuts(tmp_path, [take_cut(a_shard(Sgd(learning_rate=1.0)))])
    assert newest(stores.in_folder(tmp_path), "another", None) == ([], ())


def test_a_join_tells_what_all_incarnations_of_the_shard_have_lost() -> None:
    stored = {
        SENDER: Count(10, 20, lost=5),
        SenderIncarnation(1, 1): Count(4, 4),
        SenderIncarnation(2, 1): Count(),
    }
    assert reporting.restored_report(None, {}) is None
    report = reporting.restored_report(None, stored)
    assert report is not None
    assert [(s.acknowledged, s.lost) for s in report.senders] == [(15, 5), (4, 0), (0, 0)]
