"""A shard that is one of Downpour until it is told to begin the batch method."""

import gc
import weakref
from pathlib import Path

import pytest

from builders import batch_shards, checkpoints, placements
from builders.batch_shards import CHUNK_BYTES, ELEMENTS, FIRST_POINT
from builders.jobs import a_batch_job
from builders.transports import a_header
from disttrain.checkpoint.element_types import DTYPES
from disttrain.checkpoint.errors import Corrupt
from disttrain.checkpoint.reading import Checkpoint
from disttrain.checkpoint.storage import FolderStorage
from disttrain.coordinator.protocol import commands
from disttrain.holder import writing
from disttrain.holder.restoring import MakeValues, Wanted
from disttrain.parameter_server import final_snapshot, restoring, strategies
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.final_snapshot import GracefulShutdown, SnapshotWriter
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.restoring import RestoredShard
from disttrain.parameter_server.shard import Shard
from disttrain.sandblaster.operations import FETCHABLE, TRIAL
from disttrain.state.share import Share
from disttrain.state.vector import Vector
from disttrain.transport.header import ElementType, Header, Reason, Verb

SPEC = a_batch_job(
    "spec.strategy.sandblaster.warmStart={samples: 9, batchSize: 3, "
    "downpour: {optimizer: {adagrad: {learningRate: 1, initialAccumulator: 1}}}}"
).spec
TYPES = pytest.mark.parametrize("trainable", [placements.PARAMETERS, placements.PARAMETERS_FLOAT64])


def a_share(trainable: Vector) -> Share:
    kept = ("sum_of_squares", "prediction", *FETCHABLE)
    return placements.a_share({trainable: ELEMENTS}, CHUNK_BYTES, kept)


def wanted(share: Share, makers: dict[str, MakeValues]) -> Wanted:
    return Wanted(share=share, makers=makers, tables=restoring.TABLES)


MAKERS = strategies.makers(SPEC)


class Story:
    """A shard, and the checkpoint to which it is told to return."""

    def __init__(self, folder: Path, trainable: Vector) -> None:
        self.folder, self.trainable = folder, trainable
        self.checkpoint: Checkpoint | None = None
        self.shard = self.another()
        self.shard.configure(a_share(trainable).placement, CHUNK_BYTES)
        self.shard.state.is_initialised = True

    def another(self) -> Shard:
        state = ShardState(index=0, incarnation=1)
        shard = Shard(strategies.stages(SPEC, state, Records(incarnation=1)))
        shard.admit(SenderIncarnation(0, 1))
        return shard

    def reload(self) -> RestoredShard:
        return self.read(strategies.makers(SPEC, is_return=True))

    def read(self, makers: dict[str, MakeValues]) -> RestoredShard:
        assert self.checkpoint is not None
        restored = restoring.restore([self.checkpoint], wanted(a_share(self.trainable), makers))
        assert restored is not None
        return restored

    def save(self) -> None:
        assert self.shard.state.values is not None
        cut = writing.cut(1, self.shard.state.values, self.shard.state.notes())
        self.checkpoint = checkpoints.commit_cuts(self.folder, [cut], "adagrad")

    def returns(self) -> commands.Result:
        return self.shard.return_to(1, self.reload)

    def headers(self, verb: Verb) -> list[Header]:
        staged = batch_shards.stage_headers(self.shard, attempt=1)
        return [one._replace(verb=verb, sequence=1, scale=1.0, samples=3) for one in staged]

    def push(self) -> list[Verb | Reason]:
        answers = [
            answer.header
            for header in self.headers(Verb.PUSH)
            for answer in batch_shards.handle(self.shard, header)
        ]
        return [Reason(one.reason) if one.reason else Verb(one.verb) for one in answers]

    def parameters(self) -> list[float]:
        found = batch_shards.fetch(self.shard, self.trainable)
        assert found.dtype == DTYPES[self.trainable.element_type]
        return [float(value) for value in found.tolist()]


@TYPES
def test_it_applies_pushes_and_then_carries_out_commands(tmp_path: Path, trainable: Vector) -> None:
    story = Story(tmp_path, trainable)
    assert set(story.push()) == {Verb.PUSHED}
    reached = story.parameters()
    assert reached == pytest.approx([-(0.5**0.5)] * ELEMENTS)
    story.save()

    assert isinstance(story.returns(), commands.Done)

    assert story.parameters() == reached
    assert set(story.push()) == {Reason.NOT_ALLOWED}
    batch_shards.performed(batch_shards.perform(story.shard, 1, *FIRST_POINT, evaluation=1))
    assert batch_shards.fetch(story.shard, trainable.beside(TRIAL), 1).tolist() == reached


@TYPES
def test_who_has_not_heard_that_a_stage_is_over_gets_the_parameters(
    tmp_path: Path, trainable: Vector
) -> None:
    story = Story(tmp_path, trainable)
    story.push()
    story.save()
    story.returns()

    for name in ("prediction", "sum_of_squares"):
        given = batch_shards.fetch(story.shard, trainable.beside(name))
        assert given.tolist() == story.parameters()


def test_values_of_a_stage_that_is_over_take_no_memory(tmp_path: Path) -> None:
    story = Story(tmp_path, placements.PARAMETERS)
    story.push()
    story.save()
    former = weakref.ref(story.shard.stage.values)

    story.returns()
    gc.collect()

    assert former() is None


def test_versions_do_not_go_back_and_what_was_delivered_is_known(tmp_path: Path) -> None:
    story = Story(tmp_path, placements.PARAMETERS)
    story.push()
    story.save()
    before = story.shard.state.count

    story.returns()

    assert story.shard.state.count > before
    assert story.shard.state.deliveries.of(0, 1).pushes == 1
    assert not story.shard.stage.keeps_updates


def test_what_is_of_an_evaluation_is_refused_before(tmp_path: Path) -> None:
    story = Story(tmp_path, placements.PARAMETERS)
    trial = a_share(placements.PARAMETERS).placement.number(placements.TRIAL)
    fetch = a_header(
        Verb.FETCH,
        vector=trial,
        element_type=ElementType.FLOAT32,
        count=1,
        incarnation=1,
        receiver_incarnation=1,
    )

    for header in (story.headers(Verb.STAGE)[0], fetch):
        (answer,) = batch_shards.handle(story.shard, header)
        assert answer.header.reason == Reason.WRONG_EVALUATION
    assert story.shard.stage.keeps_updates


def test_a_return_that_fails_leaves_it_where_it_is(tmp_path: Path) -> None:
    story = Story(tmp_path, placements.PARAMETERS)
    story.push()
    reached = story.parameters()

    def damaged() -> RestoredShard:
        raise Corrupt(tmp_path, "checkpoint 1")

    assert isinstance(story.shard.return_to(1, damaged), commands.CommandFailed)

    assert story.parameters() == reached
    assert story.shard.stage.keeps_updates
    (answer,) = batch_shards.handle(story.shard, story.headers(Verb.STAGE)[0])
    assert answer.header.reason == Reason.WRONG_EVALUATION


def test_its_next_incarnation_begins_where_the_checkpoint_is(tmp_path: Path) -> None:
    story = Story(tmp_path, placements.PARAMETERS)
    story.push()
    reached = story.parameters()
    story.save()

    story.shard = story.another()
    story.shard.restore(story.read(MAKERS))
    assert story.parameters() == reached
    assert story.shard.stage.keeps_updates
    assert set(story.push()) == {Verb.PUSHED}

    assert isinstance(story.returns(), commands.Done)
    assert not story.shard.stage.keeps_updates


def test_who_is_told_to_end_keeps_its_updates_but_not_one_shards_part_of_a_method(
    tmp_path: Path,
) -> None:
    story, folder = Story(tmp_path, placements.PARAMETERS), tmp_path / "stopped"
    story.push()
    reached = story.parameters()
    story.save()
    shutdown = GracefulShutdown(
        story.shard,
        SnapshotWriter(storage=FolderStorage(folder), job_uid="job", update_rule="adagrad"),
    )

    assert shutdown.save(1)
    saved = final_snapshot.read(
        FolderStorage(folder), "job", wanted(a_share(placements.PARAMETERS), MAKERS)
    )
    assert saved is not None
    story.shard = story.another()
    story.shard.restore(saved)
    assert story.parameters() == reached
    assert set(story.push()) == {Verb.PUSHED}

    story.returns()
    shutdown = GracefulShutdown(
        story.shard,
        SnapshotWriter(storage=FolderStorage(folder), job_uid="job", update_rule="adagrad"),
    )
    assert not shutdown.save(1)
    assert shutdown.is_due(0.0)
