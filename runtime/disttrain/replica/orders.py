"""Carries out the coordinator's orders, between two steps."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from torch import nn

from disttrain.checkpoint import copies, export
from disttrain.coordinator.protocol.fields import Progress
from disttrain.coordinator.protocol.orders import (
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
from disttrain.parameter_server.client import Versions
from disttrain.replica import device, evaluation
from disttrain.replica.evaluation import Sums
from disttrain.replica.task_calls import TaskCalls
from disttrain.task.errors import ModelError, TaskError
from disttrain.task.task import Split
from disttrain.telemetry import logs

LOG = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Abilities:
    """What orders can make this replica do."""

    upload: Callable[[tuple[int, ...]], None]
    fetch_now: Callable[[], Versions]
    drain: Callable[[], Progress]
    next_stage: Callable[[], None]


class Orders:
    """Carries out one order at a time; belongs to the compute thread."""

    def __init__(
        self, task: TaskCalls, model: nn.Module, place: torch.device, abilities: Abilities
    ) -> None:
        self._task = task
        self._model = model
        self._device = place
        self._abilities = abilities

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
                self._abilities.upload(order.shards)
            case Evaluate():
                return self._evaluate(order)
            case Export():
                export.export_named(order.checkpoint, order.out)
            case Drain():
                return Drained(progress=self._abilities.drain())
            case LeaveWarmStart():
                self._abilities.next_stage()
            case End():
                LOG.info("told to end", reason=order.reason)
            case _:
                return OrderFailed(message=f"'{order.kind}' is no order for a replica")
        return Done()

    def _evaluate(self, order: Evaluate) -> Evaluated:
        began = time.perf_counter()
        versions: tuple[int, ...] = ()
        if order.model_file is None:
            versions = tuple(count for _, count in self._abilities.fetch_now())
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
