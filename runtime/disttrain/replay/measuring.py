"""Loss and measures of given values of a model, on the test split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from disttrain.job import defaults
from disttrain.replay.recording import Recording
from disttrain.replay.replica import Learner
from disttrain.replay.shard import ReplayedShard
from disttrain.replica import evaluation, task_calls
from disttrain.replica.flat_vector import FlatVector
from disttrain.state.vector import Vector
from disttrain.task.task import Split


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What a model does on the test split."""

    loss: float | None
    measures: Mapping[str, float]
    """Means over the samples."""


def measure(recording: Recording, values: Mapping[Vector, Tensor]) -> Measured:
    """Evaluate the task's model with these whole vectors."""
    learner = Learner(recording, outgoing_buffers=0)
    for vector, buffer in learner.model.first_fetch_into().items():
        FlatVector(buffer, values[vector].dtype).host.copy_(values[vector])
    learner.model.adopt_first_fetch()
    return measure_module(recording, learner.module)


def measure_module(recording: Recording, module: nn.Module) -> Measured:
    task, place = recording.task, task_calls.resolve_device(recording.device)
    examples = task.examples(Split.TEST, 1)
    batch_size = defaults.evaluation_batch_size(recording.spec)
    sums = evaluation.evaluate(task, module, examples, batch_size, task_calls.mover(place))
    samples = max(sums.samples, 1)
    return Measured(
        loss=sums.mean_loss,
        measures={name: value / samples for name, value in sums.measures.items()},
    )


def whole_values(shards: Sequence[ReplayedShard]) -> dict[Vector, Tensor]:
    return {
        vector: torch.cat([shard.values.vectors[vector] for shard in shards])
        for vector in shards[0].values.vectors
        if vector.is_of_a_model
    }
