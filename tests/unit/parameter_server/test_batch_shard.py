"""A shard of a batch method: what it keeps, gives out, refuses, and finds again."""

import random
from pathlib import Path

import numpy as np
import pytest

from builders import batch_shards, placements
from builders.batch_shards import (
    ACCEPT,
    ELEMENTS,
    FIRST_POINT,
    MEASURE,
    a_placement,
    a_shard,
    fetch,
    handle,
    perform,
    performed,
    reasons,
    stage,
    stage_headers,
)
from builders.checkpoints import parts_at
from disttrain.checkpoint import export, names, part_file
from disttrain.checkpoint.errors import Corrupt
from disttrain.coordinator.protocol import commands
from disttrain.coordinator.protocol.commands import CommandFailed, WhyFailed
from disttrain.holder import writing
from disttrain.parameter_server import ledger
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.ledger import Kind, Ledger
from disttrain.parameter_server.restoring import RestoredShard
from disttrain.parameter_server.strategies import sandblaster
from disttrain.sandblaster import operations as ops
from disttrain.sandblaster.batch.batches import Run
from disttrain.sandblaster.batch.programs import Decided, Program
from disttrain.sandblaster.operations import PARAMETERS, TRIAL
from disttrain.state.vector import Vector
from disttrain.transport.header import Reason, Verb

TRIAL_NUMBER = a_placement(placements.PARAMETERS).number(placements.TRIAL)
TYPES = pytest.mark.parametrize("trainable", [placements.PARAMETERS, placements.PARAMETERS_FLOAT64])


@TYPES
def test_the_gradient_that_arrives_is_the_mean_over_all_groups(trainable: Vector) -> None:
    shard = a_shard(trainable)
    performed(perform(shard, 1, *FIRST_POINT, evaluation=1, groups=3))
    assert fetch(shard, trainable.beside(TRIAL), 1).tolist() == list(range(1, ELEMENTS + 1))

    for group in (2, 0, 1):
        assert stage(shard, attempt=group + 5, value=float(group), group=group)

    (square,) = performed(perform(shard, 2, *MEASURE, commits=(5, 6, 7)))
    assert square == pytest.approx(ELEMENTS * 1.0)


@TYPES
def test_an_accepted_point_is_what_is_fetched_from_then_on(trainable: Vector) -> None:
    shard = a_shard(trainable)
    performed(perform(shard, 1, *FIRST_POINT, ops.Scale(vector="trial", factor=3.0)))
    before = fetch(shard, trainable)

    performed(perform(shard, 2, ops.Swap(first=PARAMETERS, second="trial")))

    assert before.tolist() == list(range(1, ELEMENTS + 1))
    assert fetch(shard, trainable).tolist() == [3.0 * one for one in range(1, ELEMENTS + 1)]
    assert shard.state.count == 2


def test_chunks_may_come_in_any_order_and_again() -> None:
    shard = a_shard()
    performed(perform(shard, 1, *FIRST_POINT, evaluation=1, groups=1))
    headers = stage_headers(shard, attempt=1)
    sent = [*headers, *headers[1:]]
    random.Random(3).shuffle(sent)
    answers = [answer.header for header in sent for answer in handle(shard, header)]

    assert {answer.verb for answer in answers} == {Verb.STAGED}
    assert all((one.sequence, one.lease, one.chunk + 1) == (1, 1, one.chunks) for one in answers)
    again = handle(shard, headers[0], value=99.0)
    assert [answer.header.verb for answer in again] == [Verb.STAGED]
    (square,) = performed(perform(shard, 2, *MEASURE, commits=(1,)))
    assert square == ELEMENTS


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"sequence": 2}, Reason.WRONG_EVALUATION),
        ({"sequence": 0}, Reason.WRONG_EVALUATION),
        ({"lease_offset": 2}, Reason.WRONG_LAYOUT),
        ({"chunk": 1}, Reason.WRONG_LAYOUT),
        ({"chunks": 99}, Reason.WRONG_LAYOUT),
        ({"first": 16}, Reason.WRONG_LAYOUT),
        ({"first": ELEMENTS}, Reason.WRONG_LAYOUT),
        ({"count": 3}, Reason.WRONG_LAYOUT),
        ({"element_type": 2}, Reason.WRONG_LAYOUT),
        ({"vector": TRIAL_NUMBER}, Reason.WRONG_LAYOUT),
        ({"vector": 200}, Reason.WRONG_LAYOUT),
        ({"vector": 0}, Reason.WRONG_LAYOUT),
        ({"sender": 1}, Reason.WRONG_LAYOUT),
        ({"sender": 2}, Reason.UNKNOWN_SENDER),
        ({"incarnation": 0}, Reason.OLD_INCARNATION),
        ({"incarnation": 2}, Reason.UNKNOWN_SENDER),
        ({"receiver_incarnation": 7}, Reason.WRONG_RECEIVER),
        ({"role": 1}, Reason.NOT_ALLOWED),
        ({"verb": Verb.PUSH}, Reason.NOT_ALLOWED),
    ],
)
def test_what_fits_nowhere_is_refused_by_name_and_changes_nothing(
    changed: dict[str, int], reason: Reason
) -> None:
    shard = a_shard()
    performed(perform(shard, 1, *FIRST_POINT, evaluation=1, groups=2))
    first, *others = stage_headers(shard, attempt=1)
    handle(shard, first)

    answers = handle(shard, first._replace(**changed), value=7.0)

    assert reasons(answers) == [reason]
    assert (answers[0].header.sequence, answers[0].header.lease) == (changed.get("sequence", 1), 1)
    assert shard.refused[reason.name.lower()] == 1
    for header in others:
        handle(shard, header)
    assert stage(shard, attempt=2, value=1.0, group=1)
    (square,) = performed(perform(shard, 2, *MEASURE, commits=(1, 2)))
    assert square == ELEMENTS


def test_nothing_is_staged_before_the_values_are_there() -> None:
    shard = a_shard()
    shard.state.is_initialised = False
    assert reasons(handle(shard, stage_headers(shard, 1)[0])) == [Reason.NOT_READY]
    assert isinstance(perform(shard, 1, *FIRST_POINT), CommandFailed)


def test_a_gradient_that_is_not_finite_is_kept_for_the_line_search() -> None:
    shard = a_shard()
    performed(perform(shard, 1, *FIRST_POINT, evaluation=1, groups=1))
    assert stage(shard, attempt=1, value=float("inf"))
    (square,) = performed(perform(shard, 2, *MEASURE, commits=(1,)))
    assert square == float("inf")


def test_more_than_there_is_room_for_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandblaster, "STAGED_BYTES", 0)
    monkeypatch.setattr(sandblaster, "ATTEMPTS_OF_A_REPLICA", 0)
    monkeypatch.setattr(sandblaster, "OTHER_PIECES", 1)
    shard = a_shard()
    performed(perform(shard, 1, *FIRST_POINT, evaluation=1, groups=2))
    assert stage(shard, attempt=1, value=1.0, group=0)
    second = stage_headers(shard, attempt=2, group=0)[0]
    assert reasons(handle(shard, second)) == [Reason.BUSY]

    shard.fence(SenderIncarnation(0, 1))
    third = stage_headers(shard, attempt=3, group=1)[0]
    assert reasons(handle(shard, third._replace(sender=1))) == [Reason.BUSY], "it may still win"

    news = Decided(coordinator=1, evaluation=1, winners={0: 1})
    assert shard.stage.carry_out(commands.Decide(news=news)) == commands.Done()
    assert shard.stage.figures.staged_bytes == 4 * ELEMENTS, "the sum"


def test_the_point_of_another_evaluation_is_not_given_out() -> None:
    shard = a_shard()
    performed(perform(shard, 1, *FIRST_POINT, evaluation=3, groups=1))
    for evaluation in (0, 2, 4):
        header = stage_headers(shard, 1, evaluation=evaluation)[0]
        asked = header._replace(verb=Verb.FETCH, vector=TRIAL_NUMBER, chunk=0, count=1)
        assert reasons(list(shard.handle(asked, memoryview(b"")))) == [Reason.WRONG_EVALUATION]
    other = header._replace(verb=Verb.FETCH, vector=200, count=1, sequence=3)
    assert reasons(list(shard.handle(other, memoryview(b"")))) == [Reason.WRONG_LAYOUT]


@pytest.mark.parametrize(
    "command",
    [
        {"number": 3},
        {"number": 1, "commits": (1,)},
        {"number": 1, "operations": (ops.Scale(vector="nothing", factor=1.0),)},
    ],
)
def test_a_command_out_of_step_says_so(command: dict[str, object]) -> None:
    shard = a_shard()
    made = Program(
        **({"coordinator": 1, "number": 1, "iteration": 0, "evaluation": 0} | command)  # type: ignore[arg-type]
    )
    failed = shard.stage.carry_out(commands.Perform(order=made))
    assert isinstance(failed, CommandFailed)
    assert failed.why is WhyFailed.OUT_OF_STEP
    assert shard.state.count == 0


@TYPES
def test_a_checkpoint_brings_every_vector_back_to_its_place(
    trainable: Vector, tmp_path: Path
) -> None:
    shard = a_shard(trainable)
    batch_shards.one_iteration([shard])
    checkpoint = batch_shards.commit(tmp_path, [shard])
    again = a_shard(trainable)
    again.restore(batch_shards.read(checkpoint))

    assert batch_shards.vectors(again) == batch_shards.vectors(shard)
    assert list(batch_shards.vectors(again)) == list(batch_shards.vectors(shard))
    assert again.state.count == shard.state.count
    for one in (shard, again):
        assert isinstance(perform(one, 5, *ACCEPT), CommandFailed)
        performed(perform(one, 4, *ACCEPT))
    assert batch_shards.vectors(again) == batch_shards.vectors(shard)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 3)])
@TYPES
def test_a_checkpoint_comes_back_into_another_number_of_shards(
    trainable: Vector, before: int, after: int, tmp_path: Path
) -> None:
    shards = [a_shard(trainable, index, before) for index in range(before)]
    batch_shards.one_iteration(shards)
    checkpoint = batch_shards.commit(tmp_path, shards)
    others = [a_shard(trainable, index, after) for index in range(after)]
    for index, shard in enumerate(others):
        shard.restore(batch_shards.read(checkpoint, index, after))

    for name in batch_shards.vectors(shards[0]):
        whole = b"".join(batch_shards.vectors(shard)[name] for shard in shards)
        assert b"".join(batch_shards.vectors(shard)[name] for shard in others) == whole
    for shard in others:
        performed(perform(shard, 4, *ACCEPT))


def test_a_living_shard_returns_to_a_checkpoint(tmp_path: Path) -> None:
    shard = a_shard()
    batch_shards.one_iteration([shard])
    checkpoint = batch_shards.commit(tmp_path, [shard])
    then = batch_shards.vectors(shard)
    version = shard.state.count
    assert stage(shard, attempt=9, value=1.0, evaluation=2)
    performed(perform(shard, 4, *ACCEPT))

    assert shard.return_to(1, lambda: batch_shards.read(checkpoint)) == commands.Done()

    assert batch_shards.vectors(shard) == then
    assert shard.state.count == version + 2, "versions never go back"
    assert shard.stage.figures.staged_bytes == 0
    performed(perform(shard, 4, *ACCEPT, evaluation=5, groups=1))
    assert stage(shard, attempt=20, value=1.0, evaluation=5)


def test_a_checkpoint_that_is_damaged_changes_nothing(tmp_path: Path) -> None:
    def damaged() -> RestoredShard:
        raise Corrupt(tmp_path, "checkpoint 7")

    shard = a_shard()
    batch_shards.one_iteration([shard])
    before = batch_shards.vectors(shard)
    failed = shard.return_to(7, damaged)
    assert isinstance(failed, CommandFailed)
    assert "checkpoint 7" in failed.message
    assert failed.why is WhyFailed.DAMAGED
    assert batch_shards.vectors(shard) == before


def test_what_is_written_is_of_one_moment_while_commands_go_on(tmp_path: Path) -> None:
    shard = a_shard()
    batch_shards.one_iteration([shard])
    assert shard.state.values is not None
    then = batch_shards.vectors(shard)
    made = writing.cut(1, shard.state.values, shard.state.notes())
    shard.state.cut = made
    for group in range(3):
        assert stage(shard, group + 5, 1.0, group, evaluation=2)
    performed(perform(shard, 4, *MEASURE, commits=(5, 6, 7)))
    performed(perform(shard, 5, *ACCEPT, ops.Combine(target="s1", terms={"s0": 2.0})))
    writing.write(made, parts_at(tmp_path))
    shard.state.cut = None

    with part_file.opened(tmp_path / names.part_file(0)) as file:
        for name in then.keys() - {"s0"}:
            assert bytes(file.read_all(f"0/{name}/float32")) == then[name]
        assert file.metadata["order"] == "3"
    with part_file.opened(
        tmp_path / made.immutable.files[placements.PARAMETERS.beside("s0")].name
    ) as file:
        assert bytes(file.read_all(names.VECTOR)) == then["s0"]
    assert batch_shards.vectors(shard)["s0"] != then["s0"]


def test_a_model_in_double_precision_is_exported_in_its_own_type(tmp_path: Path) -> None:
    shard = a_shard(placements.PARAMETERS_FLOAT64)
    batch_shards.one_iteration([shard])
    checkpoint = batch_shards.commit(tmp_path, [shard])
    out = tmp_path / "model.safetensors"
    export.export(checkpoint.path, out)
    with part_file.opened(out) as file:
        assert file.tensors["weight"].type == "F32"
        found = np.frombuffer(file.read_all("weight"), np.float32)
    wanted = fetch(shard, placements.PARAMETERS_FLOAT64).astype(np.float32)
    assert found.tobytes() == wanted.tobytes()


def test_what_commands_take_is_counted_once() -> None:
    shard = a_shard()
    performed(perform(shard, 1, *FIRST_POINT, evaluation=1, groups=1))
    performed(perform(shard, 1, *FIRST_POINT, evaluation=1, groups=1))
    assert stage(shard, attempt=1, value=1.0)
    assert shard.stage.figures.commands == 1
    assert shard.stage.figures.command_seconds > 0
    assert shard.stage.figures.staged_bytes == 4 * ELEMENTS


def test_commits_are_written_down_with_the_groups_own_numbers(tmp_path: Path) -> None:
    shard = a_shard()
    path = tmp_path / "shard-0.i1.bin"
    shard.records.ledger = Ledger(path)
    performed(perform(shard, 1, *FIRST_POINT, evaluation=1, groups=2))
    assert stage(shard, attempt=8, value=1.0, group=0)
    assert stage(shard, attempt=9, value=1.0, group=1)
    performed(perform(shard, 2, *MEASURE, commits=(8, 9)))
    performed(perform(shard, 2, *MEASURE, commits=(8, 9)))
    shard.records.committed(
        7,
        Program(
            coordinator=2,
            number=3,
            iteration=0,
            evaluation=0,
            commits=(4, 5),
            samples=60,
            runs=(Run(vector="before", groups=(6,)), Run(vector="middle", groups=(2,))),
        ),
    )
    shard.records.ledger.close()

    records = ledger.read(path)
    found = records[records["kind"] == Kind.COMMITTED]
    columns = ["sequence", "lease_offset", "lease", "samples", "version", "incarnation"]
    assert [tuple(int(row[one]) for one in columns) for row in found] == [
        (1, 0, 8, 2, 2, 1),
        (1, 1, 9, 2, 2, 1),
        (7, 6, 4, 60, 3, 2),
        (7, 2, 5, 60, 3, 2),
    ]
