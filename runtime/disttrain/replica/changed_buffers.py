"""Which of a model's buffers change in training, and whether shards can share the changes.

Constant ones are not sent.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from disttrain.replica.flat_vector import FlatVector
from disttrain.replica.model_tensors import ModelTensors
from disttrain.state.layout import TensorSpec
from disttrain.state.placement import Range
from disttrain.state.vector import BUFFERS, Vector
from disttrain.task.errors import ModelError
from disttrain.transport.header import ElementType

_COUNTERS = Vector(0, BUFFERS, ElementType.INT64)


class ChangedBuffers:
    """Watches the values that are pushed. What changed once counts as changing for ever."""

    def __init__(self, tensors: ModelTensors, initial: Mapping[Vector, FlatVector]) -> None:
        """`initial`: the values that the shards have."""
        self._specs = {vector: tensors.specs(vector) for vector in initial}
        self._constant = {
            spec.name: _part(initial[vector].host, spec).clone()
            for vector, specs in self._specs.items()
            for spec in specs
        }
        counters = initial.get(_COUNTERS)
        self._counters = counters.host.clone() if counters is not None else None
        """Whole numbers as they were pushed last."""

    def runs(self, values: Mapping[Vector, FlatVector]) -> dict[Vector, tuple[Range, ...]]:
        """The ranges of each vector that hold changing buffers; neighbours are joined.

        Raises ModelError with the name of a whole-number or bool buffer that has become less.
        """
        if self._counters is not None:
            self._check_counters(values[_COUNTERS].host, self._counters)
        return {vector: self._runs(vector, flat.host) for vector, flat in values.items()}

    def _runs(self, vector: Vector, host: Tensor) -> tuple[Range, ...]:
        runs: list[Range] = []
        for spec in self._specs[vector]:
            if not spec.elements or not self._changes(spec, host):
                continue
            first, end = spec.first, spec.first + spec.elements
            if runs and runs[-1].end == first:
                first = runs.pop().first
            runs.append(Range(first=first, end=end))
        return tuple(runs)

    def _check_counters(self, host: Tensor, before: Tensor) -> None:
        if bool((host < before).any()):
            raise ModelError(self._decrease(host, before))
        before.copy_(host)

    def _decrease(self, host: Tensor, before: Tensor) -> str:
        name, index = next(
            (spec.name, spec.first + place)
            for spec in self._specs[_COUNTERS]
            for place in torch.nonzero(_part(host, spec) < _part(before, spec)).flatten().tolist()
        )
        return (
            f"the buffer '{name}' went from {int(before[index])} to {int(host[index])}: of "
            "whole-number and bool buffers replicas share the largest value, as of counters. If "
            "it is something else (a place in a queue, a mask, a flag), keep it to each replica: "
            "register_buffer(..., persistent=False), together with what it belongs to"
        )

    def _changes(self, spec: TensorSpec, host: Tensor) -> bool:
        before = self._constant.get(spec.name)
        if before is None:
            return True
        if torch.equal(_part(host, spec), before):
            return False
        del self._constant[spec.name]
        return True


def _part(host: Tensor, spec: TensorSpec) -> Tensor:
    return host[spec.first : spec.first + spec.elements]
