"""One forward pass for the loss and the measures of a batch, which both call the model."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


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
        self._forward = model.forward
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
