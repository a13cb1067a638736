"""Measures a model on a split: in eval mode, with sums over the samples."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from disttrain.replica.pipeline import read
from disttrain.replica.task_calls import Examples, TaskCalls
from disttrain.task import checks


@contextmanager
def one_forward(model: nn.Module) -> Iterator[None]:
    """Inside, a model that is called again with the same objects returns what it returned.

    Unless something was written in them or in the result since. It computes anew with gradients,
    and where an argument or the result is other than tensors, plain values and tuples of them.
    Compiled and scripted models stay as they are.
    """
    compiled = model._compiled_call_impl is not None  # noqa: SLF001 - It has no public name.
    if compiled or isinstance(model, torch.jit.ScriptModule):
        yield
        return
    before = vars(model).get("forward")
    model.forward = _Remembering(model)
    try:
        yield
    finally:
        del model.forward
        if before is not None:
            model.forward = before


@dataclass(frozen=True, slots=True)
class _Call:
    """A call, with the versions of its tensors: PyTorch counts what is written in place."""

    arguments: tuple[Any, ...]
    given: list[int]
    result: Any
    returned: list[int]


class _Remembering:
    """A forward method that remembers its latest call."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._forward = self.__wrapped__ = model.forward
        self._latest: _Call | None = None

    def __call__(self, *positional: Any, **named: Any) -> Any:
        names = tuple(sorted(named))
        arguments = (self._model.training, *positional, *names, *(named[name] for name in names))
        given = _versions(arguments)
        if given is None or torch.is_grad_enabled():
            return self._forward(*positional, **named)

        latest = self._latest
        if latest is not None and _is_same(latest, arguments, given):
            return latest.result
        result = self._forward(*positional, **named)
        returned = _versions(result)
        self._latest = None if returned is None else _Call(arguments, given, result, returned)
        return result


def _is_same(call: _Call, arguments: tuple[Any, ...], given: list[int]) -> bool:
    if len(arguments) != len(call.arguments):
        return False
    same = all(one is other for one, other in zip(arguments, call.arguments, strict=True))
    return same and given == call.given and _versions(call.result) == call.returned


def _versions(value: Any) -> list[int] | None:
    """Those of the tensors in it; None if something in it may change without being counted."""
    if isinstance(value, Tensor):
        return None if value.is_inference() else [value._version]  # noqa: SLF001 - As above.
    if value is None or isinstance(value, bool | int | float | str):
        return []
    if not isinstance(value, tuple):
        return None
    found: list[int] = []
    for part in value:
        versions = _versions(part)
        if versions is None:
            return None
        found += versions
    return found


Placing = Callable[[Any], Any]
Computing = Callable[[Sequence[int]], AbstractContextManager[None]]
"""Makes the block in which one batch is computed, of these samples of the split."""


def alone(_: Sequence[int]) -> AbstractContextManager[None]:
    """Of a model that one process has."""
    return nullcontext()


@dataclass(slots=True)
class Sums:
    """What was measured so far."""

    samples: int = 0
    loss: float = 0.0
    """Over everything that counts."""
    count: float = 0.0
    """What the loss is a sum of: samples, unless the task says something else."""
    measures: dict[str, float] = field(default_factory=dict)

    @property
    def mean_loss(self) -> float | None:
        return self.loss / self.count if self.count else None

    def add(self, samples: int, loss: tuple[float, float], measures: dict[str, float]) -> None:
        self.samples += samples
        self.loss += loss[0]
        self.count += loss[1]
        for name, value in measures.items():
            self.measures[name] = self.measures.get(name, 0.0) + value


def evaluate(
    task: TaskCalls,
    model: nn.Module,
    examples: Examples,
    batch_size: int,
    place: Placing,
    computing: Computing = alone,
) -> Sums:
    """Sums over the whole split; `place` moves a batch to where the model computes.

    Leaves the model in the mode it was in. Raises TaskError, also when nothing counts in the loss.
    """
    sums = _sums(task, model, examples, batch_size, place, computing)
    checks.check_split_count(sums.count, sums.samples)
    return sums


def _sums(
    task: TaskCalls,
    model: nn.Module,
    examples: Examples,
    batch_size: int,
    place: Placing,
    computing: Computing,
) -> Sums:
    sums = Sums()
    with _evaluating(model), torch.no_grad():
        for first in range(0, examples.count, batch_size):
            indices = list(range(first, min(first + batch_size, examples.count)))
            batch = place(task.collate(read(examples.dataset, indices)))
            with computing(indices):
                loss, measures = _of_batch(task, model, batch, len(indices))
            sums.add(len(indices), loss, measures)
    return sums


def try_one_batch(
    task: TaskCalls,
    model: nn.Module,
    examples: Examples,
    batch_size: int,
    place: Placing,
    computing: Computing = alone,
) -> Sums:
    """Evaluate the first batch, so that a mistake shows before the training. Raises TaskError.

    That nothing counts in this one is no mistake.
    """
    first = Examples(dataset=examples.dataset, count=min(batch_size, examples.count))
    return _sums(task, model, first, batch_size, place, computing)


def measure_batch(task: TaskCalls, model: nn.Module, batch: Any, samples: int) -> None:
    """Compute as an evaluation does, for others who compute the same. Raises TaskError."""
    with _evaluating(model), torch.no_grad():
        _of_batch(task, model, batch, samples)


def _of_batch(
    task: TaskCalls, model: nn.Module, batch: Any, samples: int
) -> tuple[tuple[float, float], dict[str, float]]:
    with one_forward(model):
        return task.loss_sum(model, batch, samples), task.measures(model, batch)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in training.items():
            module.training = mode
