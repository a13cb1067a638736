"""Shards of a batch method without a process, and what a replica and a coordinator say to them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from builders import checkpoints, placements
from builders.transports import a_header
from disttrain.checkpoint.element_types import DTYPES
from disttrain.checkpoint.reading import Checkpoint
from disttrain.coordinator.protocol import commands
from disttrain.holder import writing
from disttrain.holder.restoring import Wanted
from disttrain.job.strategies.sandblaster import Lbfgs
from disttrain.parameter_server import restoring
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import Answer, ShardState
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.restoring import RestoredShard
from disttrain.parameter_server.shard import Shard
from disttrain.parameter_server.strategies import sandblaster
from disttrain.parameter_server.strategies.sandblaster import BatchVectors
from disttrain.sandblaster import operations as ops
from disttrain.sandblaster.batch.programs import Program
from disttrain.sandblaster.batch.staging import BatchShard
from disttrain.sandblaster.operations import (
    ARRIVED,
    DIRECTION,
    FETCHABLE,
    GRADIENT,
    PARAMETERS,
    TRIAL,
    Operation,
)
from disttrain.state.placement import Placement
from disttrain.state.share import Share
from disttrain.state.vector import Vector
from disttrain.transport.header import ElementType, Header, Reason, Verb

ELEMENTS = 40
CHUNK_BYTES = 64

FIRST_POINT: tuple[Operation, ...] = (ops.Copy(source=PARAMETERS, target=TRIAL),)
MEASURE: tuple[Operation, ...] = (ops.Dots(vector=ARRIVED, others=(ARRIVED,)),)
ACCEPT: tuple[Operation, ...] = (
    ops.Swap(first=GRADIENT, second=ARRIVED),
    ops.Swap(first=PARAMETERS, second=TRIAL),
    ops.Combine(target=DIRECTION, terms={GRADIENT: -1.0}),
    ops.Combine(target="s0", terms={DIRECTION: 0.5, GRADIENT: 0.25}),
    ops.Combine(target=TRIAL, terms={PARAMETERS: 1.0, DIRECTION: 0.125}),
)


def a_placement(trainable: Vector, elements: int = ELEMENTS, shards: int = 1) -> Placement:
    """Of a model that has one vector."""
    return placements.a_placement({trainable: elements}, shards, FETCHABLE)


def a_shard(
    trainable: Vector = placements.PARAMETERS,
    index: int = 0,
    shards: int = 1,
    elements: int = ELEMENTS,
    chunk_bytes: int = CHUNK_BYTES,
) -> Shard:
    """With parameters 1, 2, 3, ...; replicas 0 and 1 may stage."""
    state = ShardState(index=index, incarnation=1)
    shard = Shard([BatchVectors(Lbfgs(), state, Records(incarnation=1), replicas=2)])
    shard.configure(a_placement(trainable, elements, shards), chunk_bytes)
    assert state.values is not None
    held = state.values.share.ranges[trainable]
    state.values.tensor(trainable).copy_(torch.arange(held.first + 1, held.end + 1))
    state.is_initialised = True
    for sender in range(2):
        shard.admit(SenderIncarnation(sender, 1))
    return shard


def batch_of(shard: Shard) -> BatchShard:
    assert isinstance(shard.stage, BatchVectors)
    return shard.stage.batch


def perform(
    shard: Shard,
    number: int,
    *operations: Operation,
    evaluation: int = 0,
    groups: int = 0,
    commits: Sequence[int] = (),
) -> commands.Result:
    """Give a command; of one sample for each group that is committed."""
    command = Program(
        coordinator=1,
        number=number,
        iteration=0,
        evaluation=evaluation,
        groups=groups,
        commits=tuple(commits),
        samples=max(1, len(commits)),
        operations=operations,
    )
    return shard.stage.carry_out(commands.Perform(order=command))


def performed(result: commands.Result) -> tuple[float, ...]:
    assert isinstance(result, commands.Performed), result
    return result.performed.scalars


def stage_headers(
    shard: Shard, attempt: int, group: int = 0, evaluation: int = 1, **fields: int
) -> list[Header]:
    """One for each chunk."""
    values = shard.state.values
    assert values is not None
    vector, share = values.trained, values.share
    made = []
    for part in share.all_chunks([vector]):
        header = a_header(
            Verb.STAGE,
            sequence=evaluation,
            lease=attempt,
            lease_offset=group,
            vector=share.placement.number(vector),
            element_type=vector.element_type,
            chunk=part.chunk,
            chunks=share.num_chunks(vector),
            first=part.first,
            count=part.count,
            payload_bytes=part.nbytes,
            incarnation=1,
            receiver_incarnation=shard.state.incarnation,
        )
        made.append(header._replace(**fields))
    return made


def handle(shard: Shard, header: Header, value: float = 1.0) -> list[Answer]:
    """A gradient whose elements are all this value."""
    kind = DTYPES[ElementType(header.element_type)]
    payload = memoryview(np.full(header.count, value, kind).tobytes())
    return list(shard.handle(header, payload))


def stage(shard: Shard, attempt: int, value: float, group: int = 0, **at: int) -> bool:
    """All of an attempt; whether the shard says so at the end."""
    answers = [
        answer
        for header in stage_headers(shard, attempt, group, **at)
        for answer in handle(shard, header, value)
    ]
    return [answer.header.verb for answer in answers] == [Verb.STAGED]


def reasons(answers: Sequence[Answer]) -> list[Reason]:
    return [Reason(answer.header.reason) for answer in answers]


def fetch(shard: Shard, vector: Vector, evaluation: int = 0) -> NDArray[np.generic]:
    """All of a vector that the shard has."""
    values = shard.state.values
    assert values is not None
    header = a_header(
        Verb.FETCH,
        sequence=evaluation,
        vector=values.share.placement.number(vector),
        count=values.share.num_chunks(vector),
        incarnation=1,
        receiver_incarnation=shard.state.incarnation,
    )
    payloads = [bytes(answer.payload) for answer in shard.handle(header, memoryview(b""))]
    return np.frombuffer(b"".join(payloads), DTYPES[vector.element_type])


def one_iteration(shards: Sequence[Shard], commits: int = 3) -> None:
    """Commands 1 to 3: an evaluation with a few groups, and a point that is accepted."""
    for shard in shards:
        performed(perform(shard, 1, *FIRST_POINT, evaluation=1, groups=commits))
        for group in range(commits):
            assert stage(shard, group + 1, 0.1 * (group + 1), group)
        performed(perform(shard, 2, *MEASURE, commits=range(1, commits + 1)))
        performed(perform(shard, 3, *ACCEPT, evaluation=2, groups=commits))


def next_pair(shard: Shard, command: int) -> None:
    """The history grows by a vector: the others stay as they are."""
    known = sum(name.startswith("s") for name in batch_of(shard).vectors.names)
    made = ops.Combine(target=f"s{known}", terms={GRADIENT: 0.5 + command})
    performed(perform(shard, command, made))


def vectors(shard: Shard) -> Mapping[str, bytes]:
    """Every vector's bytes, in the order of their places."""
    batch = batch_of(shard).vectors
    return {name: batch[name].tobytes() for name in batch.places}


def commit(folder: Path, shards: Sequence[Shard], number: int = 1) -> Checkpoint:
    """A checkpoint of them all, of a model that has one tensor."""
    held = [shard.state.values for shard in shards if shard.state.values is not None]
    cuts = [
        writing.cut(number, values, shard.state.notes())
        for shard, values in zip(shards, held, strict=True)
    ]
    return checkpoints.commit_cuts(folder, cuts, "lbfgs", number)


def read(checkpoint: Checkpoint, shard: int = 0, shards: int = 1) -> RestoredShard:
    """One shard's part of a checkpoint."""
    there = checkpoint.manifest.placement
    placement = a_placement(there.vectors[0], there.elements(there.vectors[0]), shards)
    wanted = Wanted(
        share=Share(placement, shard, CHUNK_BYTES),
        makers={"lbfgs": sandblaster.batch_values},
        tables=restoring.TABLES,
    )
    restored = restoring.restore([checkpoint], wanted)
    assert restored is not None
    return restored
