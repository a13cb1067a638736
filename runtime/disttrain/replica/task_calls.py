"""Calls the user's task: with which seeds, on which device, and what comes back, checked.

The random numbers of a batch come from the job's seed and the place in the data: they do not depend
on which replica processes it, nor on when.
"""

import hashlib
import inspect
import random
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset

from disttrain.coordinator.leases import permutation
from disttrain.job import defaults
from disttrain.job.roles import Device
from disttrain.job.spec import DistTrainJob
from disttrain.job.strategy_kind import Precision
from disttrain.parallel.initial_values import RecordedModel, lacks_values
from disttrain.parallel.partitioned import CannotPartition, PartOfModel, SeveralDevices
from disttrain.replica.errors import DeviceNotFound, DeviceTooOld
from disttrain.task import checks, groups, loading, user_code
from disttrain.task.errors import LossError, ModelError, UserCodeError
from disttrain.task.groups import GroupFactors
from disttrain.task.loss import BatchLoss, LossContext, numbers
from disttrain.task.sources import Sources, SourcesReader
from disttrain.task.task import InputPipeline, Split, Task
from disttrain.telemetry import logs

LOG = logs.get(__name__)


def resolve_device(wanted: Device, *, autocasts: bool = False) -> torch.device:
    """The device that the manifest means on this machine. Raises DeviceNotFound, DeviceTooOld.

    `autocasts`: it computes in bfloat16.
    """
    found = torch.cuda.is_available()
    if wanted is Device.CUDA and not found:
        message = "spec.replicas.device: cuda was asked for, but PyTorch finds no GPU; use auto"
        raise DeviceNotFound(message)
    device = torch.device("cuda" if found and wanted is not Device.CPU else "cpu")
    if autocasts and device.type == "cuda" and not _computes_in_bfloat16():
        name = torch.cuda.get_device_name()
        message = (
            f"spec.strategy.downpour.precision: bfloat16 was asked for, but the GPU, {name}, does "
            "not compute with it; take float32, or a GPU of compute capability 8.0 or newer"
        )
        raise DeviceTooOld(message)
    return device


def _computes_in_bfloat16() -> bool:
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def mover(device: torch.device) -> Callable[[Any], Any]:
    if device.type == "cpu":
        return lambda batch: batch
    return lambda batch: move(batch, device)


def move(batch: Any, device: torch.device) -> Any:
    return _each_tensor(batch, lambda tensor: tensor.to(device, non_blocking=True))


def in_double_precision(batch: Any) -> Any:
    return _each_tensor(batch, lambda one: one.double() if one.is_floating_point() else one)


def holds_double_precision(batch: Any) -> bool:
    found: list[bool] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor.dtype is torch.float64)
        return tensor

    _each_tensor(batch, note)
    return any(found)


def _device_of(batch: Any) -> torch.device:
    found: list[torch.device] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor.device)
        return tensor

    _each_tensor(batch, note)
    return found[0] if found else torch.device("cpu")


def _each_tensor(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, dict):
        return {name: _each_tensor(part, change) for name, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_each_tensor(part, change) for part in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(_each_tensor(part, change) for part in batch)
    return batch


def seed_model(seed: int) -> None:
    """Seed what `model()` draws from: the job's seed itself, so that a plain loop starts alike."""
    seed_everything(seed)


def batch_seed(seed: int, epoch: int, portion: int, offset: int) -> int:
    text = f"{seed} {epoch} {portion} {offset}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def seed_step(seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(seed)


def seed_everything(seed: int) -> None:
    seed_step(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


LossOfBatch = Callable[[Any, LossContext], BatchLoss]

_NO_VALUES = (
    "The model is divided among partitions, and no process has all of it: Task.loss() and "
    "Task.measure() may call the model, or give it to a loss of disttrain.parallel, and may not "
    "read or write its parameters or buffers, or call one of its layers. "
    "Give weight decay to the optimizer, let layers return what the loss needs, or set "
    "spec.replicas.partitions to 1"
)
_NO_ROWS = (
    "With spec.replicas.inner: fsdp2 a rank has all of a parameter only while the model computes: "
    "let Task.loss() and Task.measure() call the model, and its forward() use the parameters. "
    "Give weight decay to the optimizer, or let inner be ddp"
)
_META = re.compile(r"\bmeta\b(?!\.)")
"""In what torch says of tensors without values; a file may have such a name."""
_DOUBLE_DATA = (
    "The batch holds float64 tensors, and the model is float32: use .float() in the data set, or "
    "set spec.strategy.sandblaster.precision: float64, if that is the strategy"
)

_NOT_IN_BFLOAT16 = (
    "The job computes in bfloat16 (spec.strategy.downpour.precision): where that cannot be, use "
    "torch.autocast(..., enabled=False) and .float(), or let precision be float32"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Examples:
    """One split of the task's data."""

    dataset: Dataset[Any]
    count: int
    """Samples."""
    sources: str = ""
    """Digest of the sources, of data that is read in order."""

    def portions(self, seed: int, portion_size: int) -> Callable[[int, int], NDArray[np.int64]]:
        """The samples of a portion in an epoch, in their order."""
        return permutation.portions_of(seed, self.count, portion_size, in_order=bool(self.sources))


class TaskCalls:
    """A task whose errors name the method, and whose values are checked.

    In double precision its models and batches are, whatever the task makes.
    """

    def __init__(
        self, task: Task, precision: Precision = Precision.FLOAT32, *, autocasts: bool = False
    ) -> None:
        """`autocasts`: losses and measures compute in bfloat16 what torch.autocast lets them."""
        self._task = task
        self._autocasts = autocasts
        self._is_double = precision is Precision.FLOAT64
        self._name = type(task).__name__
        self._examples: dict[Split, Examples] = {}
        self._wants_context = "context" in inspect.signature(task.loss).parameters
        self._latest = LossContext()
        self._has_count = False
        self._takes_derivatives = False

    def model(self, seed: int) -> nn.Module:
        """A new model with the seed's initial values, in training mode. Raises TaskError."""
        seed_model(seed)
        with user_code.running(f"{self._name}.model()"):
            model: object = self._task.model()
        checked = checks.check_model(model).train()
        return checked.double() if self._is_double else checked

    def model_to_divide(self, seed: int) -> tuple[nn.Module, Callable[[PartOfModel], None] | None]:
        """The same model without its values, and what gives a part those that are its own.

        So nobody holds all of them. None: the model has its values, since its constructor takes
        some that torch does not draw. Raises TaskError.
        """
        try:
            recorded = self._recorded(seed)
        except (UserCodeError, CannotPartition) as error:
            why = error.__cause__ or error
            LOG.info("each process makes the whole model for its initial values", reason=why)
            return self.model(seed), None
        return self._without_values(recorded), partial(recorded.initialise, seed=seed)

    def model_without_values(self, seed: int) -> nn.Module | None:
        """The same model, which nobody makes whole. None: it can only be made with its values.

        Raises TaskError, and ModelError for one that lies on several devices.
        """
        try:
            return self._without_values(self._recorded(seed))
        except (UserCodeError, CannotPartition) as error:
            if isinstance(error.__cause__, SeveralDevices):
                message = f"Task.model(): {error.__cause__}; replicas go by spec.replicas.device"
                raise ModelError(message) from error
            return None

    def _without_values(self, recorded: RecordedModel) -> nn.Module:
        checked = checks.check_model(recorded.model, has_values=False).train()
        return checked.double() if self._is_double else checked

    def _recorded(self, seed: int) -> RecordedModel:
        seed_model(seed)
        with user_code.running(f"{self._name}.model()"):
            recorded = RecordedModel(self._task.model)
        kept = [name for name, value in vars(self._task).items() if lacks_values(value)]
        if kept:
            message = f"Task.model() keeps tensors in the task: {', '.join(kept)}"
            raise CannotPartition(message)
        return recorded

    def examples(self, split: Split, batch_size: int) -> Examples:
        """The data of a split, made once. Raises TaskError."""
        if split not in self._examples:
            with user_code.running(f"{self._name}.dataset('{split}')"):
                dataset = self._task.dataset(split)
            sources = ""
            if isinstance(dataset, Sources):
                dataset = SourcesReader(dataset, f"Task.dataset('{split}')")
                dataset.check_beginnings()
                sources = dataset.digest
            count = checks.check_dataset(dataset, split, batch_size=batch_size)
            self._examples[split] = Examples(dataset=dataset, count=count, sources=sources)
        return self._examples[split]

    def parameter_groups(self, model: nn.Module) -> dict[str, GroupFactors]:
        """The factors of the parameters that are in a group, by name. Raises TaskError."""
        with user_code.running(f"{self._name}.parameter_groups()"):
            return groups.resolve(self._task.parameter_groups(model), model)

    def input_pipeline(self) -> InputPipeline:
        with user_code.running(f"{self._name}.input_pipeline()"):
            return self._task.input_pipeline()

    def collate(self, samples: Any) -> Any:
        with user_code.running(f"{self._name}.collate()"):
            batch = self._task.collate(samples)
        return in_double_precision(batch) if self._is_double else batch

    def loss(self, model: nn.Module, batch: Any, context: LossContext) -> BatchLoss:
        """The loss of a training step. Raises TaskError."""
        self._latest = context
        with self._with_remedy(model, batch), user_code.running(f"{self._name}.loss()"):
            loss = _known(model, checks.check_loss(self._loss(model, batch, context)))
        if self._has_count and loss.count is None:
            message = "Task.loss() returned a Loss before and a tensor now; let it be one of both"
            raise LossError(message)
        self._has_count = loss.count is not None
        reported = checks.check_reported(context.reported, loss.mean.device)
        return replace(loss, reported=reported)

    def loss_sum(self, model: nn.Module, batch: Any, samples: int) -> tuple[float, float]:
        """The loss of a batch in an evaluation, and what it is to be divided by. Raises TaskError.

        Without gradients, so that nothing is kept for them, unless the loss takes derivatives.
        """
        if not self._takes_derivatives:
            try:
                return self._loss_sum(model, batch, samples)
            except UserCodeError as error:
                if not isinstance(error.__cause__, RuntimeError):
                    raise
        with torch.enable_grad():
            found = self._loss_sum(model, batch, samples)
        self._takes_derivatives = True
        return found

    def _loss_sum(self, model: nn.Module, batch: Any, samples: int) -> tuple[float, float]:
        context = replace(self._latest, reported={})
        with self._with_remedy(model, batch), user_code.running(f"{self._name}.loss()"):
            found = checks.check_loss(self._loss(model, batch, context), of_a_step=False)
            loss = _known(model, found)
        if loss.sum is None or loss.count is None:
            (mean,) = numbers(loss.mean)
            return mean * samples, samples
        total, count = numbers(loss.sum, loss.count)
        checks.check_count(count)
        return total, count

    def _loss(self, model: nn.Module, batch: Any, context: LossContext) -> object:
        with self._computing(model, batch), _calling_alone(model):
            if self._wants_context:
                return self._task.loss(model, batch, context=context)  # type: ignore[call-arg]
            return self._task.loss(model, batch)

    def measures(self, model: nn.Module, batch: Any) -> dict[str, float]:
        with self._with_remedy(model, batch), user_code.running(f"{self._name}.measure()"):
            with self._computing(model, batch), _calling_alone(model):
                measures: object = self._task.measure(model, batch)
            return checks.check_measures(measures)

    def _computing(self, model: nn.Module, batch: Any) -> AbstractContextManager[object]:
        if not self._autocasts:
            return nullcontext()
        own = next(model.parameters())
        # A divided model has no values, and computes where its samples are.
        place = _device_of(batch) if own.is_meta else own.device
        return torch.autocast(place.type, torch.bfloat16)

    @contextmanager
    def _with_remedy(self, model: nn.Module, batch: Any) -> Iterator[None]:
        """Add to an error what may be wrong with the precision, or the model: torch says less."""
        try:
            yield
        except UserCodeError as error:
            remedy = self._remedy(str(error.__cause__), model, batch)
            if not remedy:
                raise
            message = f"{error}\n{remedy}"
            raise UserCodeError(message) from error.__cause__

    def _remedy(self, said: str, model: nn.Module, batch: Any) -> str:
        if _META.search(said) and _has_no_values(model):
            return _NO_VALUES
        if _has_rows(model) and ("DTensor" in said or "FSDP" in said):
            return _NO_ROWS
        if not self._is_double and holds_double_precision(batch):
            return _DOUBLE_DATA
        concerned = ("bfloat16", "autocast")
        is_told = self._autocasts and any(word in said.lower() for word in concerned)
        return _NOT_IN_BFLOAT16 if is_told else ""


def _known(model: nn.Module, loss: BatchLoss) -> BatchLoss:
    """The same. Raises LossError for one that comes from parameters that no process has alone."""
    if loss.mean.is_meta and _has_no_values(model):
        raise LossError(_NO_VALUES)
    if _has_rows(model) and hasattr(loss.mean, "to_local"):
        raise LossError(_NO_ROWS)
    return loss


@contextmanager
def _calling_alone(model: nn.Module) -> Iterator[None]:
    """A model without values is called: what is written into it would be lost. Raises LossError."""
    if not _has_no_values(model):
        yield
        return
    before = _changes(model)
    yield
    if _changes(model) != before:
        raise LossError(_NO_VALUES)


def _changes(model: nn.Module) -> int:
    return sum(each._version for each in chain(model.parameters(), model.buffers()))  # noqa: SLF001


def _has_no_values(model: nn.Module) -> bool:
    return next(model.parameters()).is_meta


def _has_rows(model: nn.Module) -> bool:
    """Whether torch's fully_shard has divided it: what is made of its parameters is a DTensor."""
    return hasattr(model, "reshard")


def load(job: DistTrainJob, folder: Path) -> TaskCalls:
    """The task of a manifest. Raises TaskError."""
    reference = job.spec.task
    task = loading.load_task(reference.entrypoint, reference.arguments, folder)
    spec = job.spec
    return TaskCalls(task, defaults.precision(spec), autocasts=defaults.autocasts(spec))
