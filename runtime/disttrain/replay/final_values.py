"""Whether replayed values are those of a checkpoint, bit by bit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disttrain.checkpoint.element_types import VECTOR_TYPES
from disttrain.checkpoint.manifest import Manifest, VectorRange
from disttrain.checkpoint.reading import Checkpoint
from disttrain.checkpoint.restore import Restore
from disttrain.parameter_server.values import Values
from disttrain.replay.shard import ReplayedShard
from disttrain.transport.header import Vector


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """What was held against the checkpoint."""

    checkpoint: int
    elements: int
    first_difference: str = ""
    """The first tensor that differs, and where; empty if all bits are the same."""


def compare(checkpoint: Checkpoint | None, shards: Sequence[ReplayedShard]) -> Compared | str:
    """The comparison with a checkpoint of exactly these versions; else why there is none."""
    if checkpoint is None:
        return "the run has no checkpoint to compare with"
    manifest = checkpoint.manifest
    saved = [entry.version for entry in manifest.shards]
    replayed = [shard.state.count for shard in shards]
    if saved != replayed:
        return f"checkpoint {manifest.number} is of versions {saved}, the replay of {replayed}"
    with Restore(checkpoint) as restore:
        differences = list(_differences(restore, shards))
    elements = sum(
        tensor.numel()
        for shard in shards
        for tensor in (*shard.values.vectors.values(), *shard.values.state.values())
    )
    return Compared(
        checkpoint=manifest.number,
        elements=elements,
        first_difference=differences[0] if differences else "",
    )


def _differences(restore: Restore, shards: Sequence[ReplayedShard]) -> Iterator[str]:
    for shard in shards:
        values = shard.values
        for vector, tensor in values.vectors.items():
            yield from _vector(restore, values, vector, tensor.numpy())
        for name, tensor in values.state.items():
            yield from _vector(restore, values, Vector.PARAMETERS, tensor.numpy(), name)


def _vector(
    restore: Restore, values: Values, vector: Vector, replayed: NDArray[np.generic], state: str = ""
) -> Iterator[str]:
    held = values.ranges[vector]
    saved = np.empty(held.count, VECTOR_TYPES[vector])
    if not held.count:
        return
    restore.read(VectorRange(vector=vector, first=held.first, end=held.end), saved.data, state)
    # As bytes: two values that compare equal may still be different bits (0.0 and -0.0).
    width = saved.dtype.itemsize
    same = saved.view(np.uint8).reshape(-1, width) == replayed.view(np.uint8).reshape(-1, width)
    different = np.flatnonzero(~same.all(axis=1))
    if different.size:
        place = int(different[0])
        what = f"{state} of " if state else ""
        yield (
            f"{what}{_tensor_at(restore.manifest, vector, held.first + place)}: "
            f"{replayed[place]!r} instead of {saved[place]!r}; {different.size} of {held.count} "
            f"elements of this shard's {vector.name} differ"
        )


def _tensor_at(manifest: Manifest, vector: Vector, element: int) -> str:
    for piece in manifest.pieces:
        if piece.vector is vector and piece.first <= element < piece.first + piece.elements:
            return f"{piece.tensor}[{element - piece.first}]"
    return f"{vector.name}[{element}]"
