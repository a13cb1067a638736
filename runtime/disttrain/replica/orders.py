"""Carries out the coordinator's orders, between two steps."""

import time
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
from torch import nn

from disttrain.checkpoint import copies, export
from disttrain.coordinator.protocol.orders import (
    Checkpoint,
    Done,
    Drain,
    Drained,
    End,
    Evaluate,
    Evaluated,
    Export,
    LeaveWarmStart,
    Order,
    OrderFailed,
    Result,
    Upload,
)
from disttrain.errors import DistTrainError
from disttrain.replica import device, evaluation
from disttrain.replica.evaluation import Sums
from disttrain.replica.prepared import Prepared
from disttrain.replica.training import Stages
from disttrain.task.errors import ModelError, TaskError
from disttrain.task.task import Split
from disttrain.telemetry import logs

LOG = logs.get(__name__)


class Orders:
    """Carries out one order at a time; belongs to the compute thread."""

    def __init__(
        self, prepared: Prepared, training: Stages, upload: Callable[[tuple[int, ...]], None]
    ) -> None:
        self._task = prepared.task
        self._model = prepared.model
        self._device = prepared.device
        self._training = training
        self._upload = upload

    def carry_out(self, order: Order) -> Result:
        """The answer to the order. What goes wrong is told to the coordinator.

        Raises TaskError for a mistake of the task in training, which ends the replica.
        """
        try:
            return self._carry_out(order)
        except (DistTrainError, OSError, RuntimeError, safetensors.SafetensorError) as error:
            if isinstance(error, TaskError) and not isinstance(order, Evaluate):
                raise
            LOG.exception("order failed", order=order.kind)
            return OrderFailed(message=str(error)[:32_000])

    def _carry_out(self, order: Order) -> Result:
        match order:
            case Upload():
                self._upload(order.shards)
            case Checkpoint():
                return self._training.now.write_part(order)
            case Evaluate():
                return self._evaluate(order)
            case Export():
                export.export_named(order.checkpoint, order.out)
            case Drain():
                self._training.now.drain()
                return Drained(progress=self._training.progress())
            case LeaveWarmStart():
                self._training.next_stage()
            case End():
                LOG.info("told to end", reason=order.reason)
            case _:
                return OrderFailed(message=f"'{order.kind}' is no order for a replica")
        return Done()

    def _evaluate(self, order: Evaluate) -> Evaluated:
        began = time.perf_counter()
        versions: tuple[int, ...] = ()
        if order.model_file is None:
            versions = tuple(count for _, count in self._training.now.fetch_now())
            model = self._model
        else:
            with copies.file_at(order.model_file) as file:
                model = self._load(file)
        sums = self._sums(model, Split(order.split), order.batch_size)
        return Evaluated(
            sums=sums.measures,
            samples=sums.samples,
            loss=sums.mean_loss,
            versions=versions,
            seconds=time.perf_counter() - began,
        )

    def _load(self, file: Path) -> nn.Module:
        """A new model with exactly what the file holds. Raises ModelError if it does not fit."""
        model = self._task.model(seed=0)
        try:
            model.load_state_dict(safetensors.torch.load_file(file), strict=True)
        except RuntimeError as error:
            message = (
                "the exported model does not fit: did Task.model() build another model in this "
                "process? Let it depend on spec.task.arguments alone, not on the process, the "
                f"time or chance. {error}"
            )
            raise ModelError(message) from error
        return model.to(self._device)

    def _sums(self, model: nn.Module, split: Split, batch_size: int) -> Sums:
        examples = self._task.examples(split, batch_size=1)
        return evaluation.evaluate(
            self._task, model, examples, batch_size, device.mover(self._device)
        )
