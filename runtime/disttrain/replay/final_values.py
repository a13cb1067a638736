"""What replayed values are: those of a checkpoint, bit by bit, and how good on a split."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from disttrain.checkpoint.manifest import Manifest
from disttrain.checkpoint.reading import Checkpoint, Restore
from disttrain.holder.values import Values
from disttrain.job import defaults
from disttrain.replay.replica import Learner, Setting
from disttrain.replay.shard import ReplayedShard, ShardInMemory
from disttrain.replica import evaluation, task_calls
from disttrain.replica.flat_vector import FlatVector
from disttrain.state.vector import PARAMETERS, Vector
from disttrain.task.task import Split


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
    saved = [entry.version for entry in manifest.holders]
    replayed = [shard.state.count for shard in shards]
    if saved != replayed:
        return f"checkpoint {manifest.number} is of versions {saved}, the replay of {replayed}"
    with Restore(checkpoint) as restore:
        differences = list(_differences(restore, shards))
    elements = sum(tensor.numel() for shard in shards for tensor in shard.values.vectors.values())
    return Compared(
        checkpoint=manifest.number,
        elements=elements,
        first_difference=differences[0] if differences else "",
    )


def _differences(restore: Restore, shards: Sequence[ReplayedShard]) -> Iterator[str]:
    for shard in shards:
        for vector, tensor in shard.values.vectors.items():
            yield from _vector(restore, shard.values, vector, tensor.numpy())


def _vector(
    restore: Restore, values: Values, vector: Vector, replayed: NDArray[np.generic]
) -> Iterator[str]:
    held = values.share.range_of(vector)
    saved = np.empty_like(replayed)
    if not held.count:
        return
    restore.read(vector, held, saved.data)
    # As bytes: two values that compare equal may still be different bits (0.0 and -0.0).
    width = saved.dtype.itemsize
    same = saved.view(np.uint8).reshape(-1, width) == replayed.view(np.uint8).reshape(-1, width)
    different = np.flatnonzero(~same.all(axis=1))
    if different.size:
        place = int(different[0])
        yield (
            f"{_element(restore.manifest, vector, held.first + place)}: "
            f"{replayed[place]!r} instead of {saved[place]!r}; {different.size} of {held.count} "
            f"elements of this shard's {vector} differ"
        )


def _element(manifest: Manifest, vector: Vector, element: int) -> str:
    what = "" if vector.is_of_a_model else f"{vector.name} of "
    lies_in = vector if vector.is_of_a_model else vector.beside(PARAMETERS)
    for piece in manifest.pieces:
        if piece.vector == lies_in and piece.first <= element < piece.first + piece.elements:
            return f"{what}{piece.tensor}[{element - piece.first}]"
    return f"{vector}[{element}]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What a model does on the test split."""

    loss: float | None
    measures: Mapping[str, float]
    """Means over the samples."""


def measure(
    setting: Setting, values: Mapping[Vector, Tensor], split: Split = Split.TEST
) -> Measured:
    """Evaluate the task's model with these whole vectors."""
    learner = Learner(setting, outgoing_buffers=0)
    take_over(learner, values)
    return measure_module(setting, learner.module, split)


def take_over(learner: Learner, values: Mapping[Vector, Tensor]) -> None:
    """Give its model these whole vectors."""
    for vector, buffer in learner.model.first_fetch_into().items():
        FlatVector(buffer, values[vector].dtype).host.copy_(values[vector])
    learner.model.adopt_first_fetch()


def measure_module(setting: Setting, module: nn.Module, split: Split = Split.TEST) -> Measured:
    task, place = setting.task, task_calls.resolve_device(setting.device)
    examples = task.examples(split, 1)
    batch_size = defaults.evaluation_batch_size(setting.spec)
    sums = evaluation.evaluate(task, module, examples, batch_size, task_calls.mover(place))
    samples = max(sums.samples, 1)
    return Measured(
        loss=sums.mean_loss,
        measures={name: value / samples for name, value in sums.measures.items()},
    )


def whole_values(shards: Sequence[ShardInMemory], evaluates: str) -> dict[Vector, Tensor]:
    """The model's vectors, with what evaluations take for the trained parameters."""
    return {
        vector: torch.cat([shard.values.vectors[taken] for shard in shards])
        for vector in shards[0].values.vectors
        if vector.is_of_a_model
        for taken in [vector.beside(evaluates) if vector.is_trained else vector]
    }
