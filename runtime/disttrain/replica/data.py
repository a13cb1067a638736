"""A task's training data and loss as a loop wants them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from disttrain.replica import device
from disttrain.replica.halt import Halt
from disttrain.replica.pipeline import Pipeline, PipelineConfig, draws_random_numbers
from disttrain.replica.prepared import Prepared
from disttrain.replica.work import Cutting, WorkSource
from disttrain.task.loss import BatchLoss, LossContext

LossOfBatch = Callable[[Any, LossContext], BatchLoss]


def pipeline(
    prepared: Prepared, seed: int, source: WorkSource, cutting: Cutting, halt: Halt
) -> Pipeline:
    """The batches of what the source gives, read as the task wants it."""
    config = _config(prepared, seed)
    return Pipeline(prepared.train.dataset, prepared.task.collate, source, cutting, config, halt)


def pipeline_beside(
    prepared: Prepared, seed: int, source: WorkSource, cutting: Cutting, halt: Halt
) -> Pipeline:
    """The same, never read between the steps, so that waiting for work holds up nothing.

    Data that draws random numbers is read by a process of its own.
    """
    dataset, collate, config = (
        prepared.train.dataset,
        prepared.task.collate,
        _config(prepared, seed),
    )
    if config.workers == 0 and draws_random_numbers(dataset, collate):
        config = replace(config, workers=1)
    return Pipeline(dataset, collate, source, cutting, config, halt)


def _config(prepared: Prepared, seed: int) -> PipelineConfig:
    wanted = prepared.task.input_pipeline()
    return PipelineConfig(
        workers=wanted.workers,
        prefetch=wanted.prefetch,
        pin_memory=prepared.device.type == "cuda",
        seed=seed,
    )


def loss_on_device(prepared: Prepared) -> LossOfBatch:
    """The task's loss of a batch, which is moved to the model's device first."""
    place = device.mover(prepared.device)
    return lambda batch, context: prepared.task.loss(prepared.model, place(batch), context)
