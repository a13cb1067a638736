"""A model whose parameters and gradients are views into flat vectors: a step gathers nothing.

Memory: parameters, one incoming copy that changes places with them, and the gradient buffers. All
methods belong to the compute thread unless they say otherwise.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from disttrain.holder import values
from disttrain.holder.values import DTYPES
from disttrain.job.spec import FrozenParameters
from disttrain.job.strategy_kind import Formats, Numbers, PushedNumbers
from disttrain.parameter_server.narrowing import ErrorFeedback, Rounding
from disttrain.replica import model_tensors
from disttrain.replica.flat_vector import (
    Allocate,
    FlatVector,
    Gradient,
    GradientViews,
    ModelBuffers,
    Outgoing,
    PinnedVector,
    over,
    side_stream,
)
from disttrain.replica.model_tensors import ModelTensors, OwnPart
from disttrain.state.factors import Factors, within
from disttrain.state.layout import TensorSpec
from disttrain.state.placement import Range
from disttrain.state.vector import FROZEN, PARAMETERS, Vector
from disttrain.task.errors import ModelError
from disttrain.transport.header import ElementType
from disttrain.transport.interface import Buffer, Memory

_NOTHING = Buffer(name="nothing", view=memoryview(b""))
"""Of a vector without elements: no memory is shared for it."""


class FlatModel(GradientViews):
    """Puts a model's parameters into flat vectors, and exchanges them when others were fetched."""

    def __init__(  # noqa: PLR0913 - The last three are what a job says of its model.
        self,
        model: nn.Module,
        memory: Memory,
        device: torch.device,
        *,
        outgoing_buffers: int,
        formats: Formats = Formats(),  # noqa: B008 - It cannot change.
        factors: Sequence[Factors] = (),
        frozen: FrozenParameters = FrozenParameters.SHARED,
        part: OwnPart | None = None,
    ) -> None:
        """`factors`: of the job, for parameters with a rate or weight decay of their own.

        `part`: what of the model lies in the vectors, where it is a part of a divided one.
        """
        self.model = model.to(device)
        self.device = device
        super().__init__(model_tensors.describe(model, formats.held, frozen=frozen, part=part))
        self.factors = factors
        self._decay_factors = [
            next(within(factors, spec.first, spec.first + 1)).weight_decay
            for spec in self.tensors.specs(self.vector)
        ]
        self._allocate = _allocator(self.tensors, memory, device)
        narrow = None
        if formats.fetched is Numbers.BFLOAT16:
            narrow = self._allocate("parameters-fetched", self.vector.narrow)
        self._current = self._half("parameters-a", self.vector, narrow)
        self._spare = self._half("parameters-b", self.vector, narrow)
        self._frozen_vector = self.vector.beside(FROZEN)
        has_frozen = self.tensors.layout.elements(self._frozen_vector)
        self._frozen = self._half("frozen", self._frozen_vector) if has_frozen else None
        self._incoming_buffers = ModelBuffers(self.tensors, self._allocate, "incoming")
        # Shards may want values while a fetch is under way, or waits to be taken.
        self._uploaded_buffers = ModelBuffers(self.tensors, self._allocate, "uploaded")
        rounding = _rounding(formats)
        self.outgoing = [
            Outgoing(self.tensors, self._allocate, number, rounding)
            for number in range(outgoing_buffers)
        ]
        self._arriving: Mapping[Vector, FlatVector] = {}
        """Where the fetch under way goes."""
        self._take_over()

    def push_beside(self, names: Sequence[str]) -> None:
        """Have room for vectors of these names, which are pushed with each gradient."""
        for number, outgoing in enumerate(self.outgoing):
            outgoing.beside = {
                self.vector.beside(name): self._allocate(f"{name}-{number}", self.vector)
                for name in names
            }

    @property
    def parameters(self) -> Tensor:
        """The flat parameters that the model computes with now; others after `adopt`."""
        return self._current.flat.tensor

    @torch.no_grad()
    def add_decay(self, gradient: Tensor, decay: float) -> None:
        """Add `decay` times each parameter to its part of the flat gradient that backward filled.

        Only where there is a gradient, as torch.optim does; see `watch_gradients`.
        """
        present = self.watch_gradients().present
        if all(present) and not self.factors:
            gradient.add_(self.parameters, alpha=decay)
            return
        of_each = zip(
            self._gradient_views, self._current.views, self._decay_factors, present, strict=True
        )
        for view, parameter, factor, is_there in of_each:
            if is_there and factor:
                view.add_(parameter, alpha=decay * factor)

    def buffer_values(self) -> dict[Vector, FlatVector]:
        """The model's buffers as they are now; unchanged until the next fetch."""
        self._incoming_buffers.gather()
        for vector in self._incoming_buffers.vectors.values():
            vector.wait_left()
        return self._incoming_buffers.vectors

    def values_to_upload(self) -> dict[Vector, Buffer]:
        """All values of the model in host memory; unchanged until the next fetch.

        Raises ModelError with the name of a parameter that no shard would take.
        """
        self._uploaded_buffers.gather()
        vectors = self._first_fetch() | self._uploaded_buffers.vectors
        for vector in vectors.values():
            vector.leave()
            vector.wait_left()
        _require_finite(self.tensors.specs(self.vector), vectors[self.vector].host)
        return {name: vector.buffer for name, vector in vectors.items()}

    def first_fetch_into(self, name: str = PARAMETERS) -> dict[Vector, Buffer]:
        """Where everything goes before training: into the model itself, but for its buffers.

        `name`: of the vector that takes the place of the trained parameters.
        """
        return self._into(name, self._first_fetch())

    def adopt_first_fetch(self) -> None:
        for vector in self._first_fetch().values():
            vector.arrive()
        self._incoming_buffers.scatter()
        if self._frozen is not None:
            torch._foreach_copy_(self.tensors.tensors(self._frozen_vector), self._frozen.views)

    def fetch_into(self, name: str = PARAMETERS, *, is_exact: bool = True) -> dict[Vector, Buffer]:
        """Where fetched values go: memory that computing does not use (fetch thread).

        `name`: as in `first_fetch_into`. `is_exact`: also where the job's fetches are rounded.
        """
        vector, flat = self.vector, self._spare.flat
        if self._spare.narrow is not None and not is_exact:
            vector, flat = vector.narrow, self._spare.narrow
        self._arriving = {vector: flat, **self._incoming_buffers.vectors}
        return self._into(name, self._arriving)

    def land(self) -> None:
        """Bring fetched values from the host to where the model computes (fetch thread)."""
        for vector in self._arriving.values():
            vector.arrive()

    def gradients(self, count: int) -> list[Gradient]:
        """Memory for so many gradients that nobody pushes; that of `outgoing` first."""
        new = range(len(self.outgoing), count)
        return [
            *self.outgoing[:count],
            *(Gradient(self.tensors, self._allocate, number) for number in new),
        ]

    def trial_into(self) -> Buffer:
        """Where a point to be tried goes; then `land_trial`, then `adopt`, as after a fetch."""
        return self._spare.flat.buffer

    def land_trial(self) -> None:
        """Bring a fetched point from the host to where the model computes (fetch thread)."""
        self._spare.flat.arrive()

    def restore_buffers(self) -> None:
        """Make the model's buffers what was fetched last, whatever a forward pass did to them."""
        self._incoming_buffers.restore()

    def adopt(self, *, buffers: bool) -> None:
        """Compute with the fetched values from now on; between two steps only."""
        self._current.release()
        self._current, self._spare = self._spare, self._current
        self._show(self._current)
        if buffers:
            self._incoming_buffers.scatter()

    @contextmanager
    def showing_fetched(self) -> Iterator[None]:
        """Inside, the model has the fetched values; afterwards its own again, bit for bit.

        Between two steps only. Nothing may be fetched meanwhile.
        """
        # A forward pass uploads nothing.
        own, fetched = self._uploaded_buffers, self._incoming_buffers
        own.gather()
        self._show(self._spare)
        fetched.restore()
        try:
            yield
        finally:
            self._show(self._current)
            own.restore()
            self._spare.release()
            for vector in fetched.vectors.values():
                vector.release()

    @torch.no_grad()
    def adopt_part(self, runs: Iterable[Range], *, buffers: bool) -> None:
        """Make some parameters those that were fetched; between two steps only."""
        fetched = self._spare.flat
        for run in runs:
            self.parameters[run.first : run.end].copy_(fetched.tensor[run.first : run.end])
        self._spare.release()
        if buffers:
            self._incoming_buffers.scatter()

    def _into(self, name: str, fetched: Mapping[Vector, FlatVector]) -> dict[Vector, Buffer]:
        own = self.vector
        return {
            (vector.beside(name) if vector.held == own else vector): flat.buffer
            for vector, flat in fetched.items()
        }

    @torch.no_grad()
    def adopt_change(
        self, runs: Iterable[Range], since: Tensor, buffers_since: ModelBuffers | None
    ) -> None:
        """Add to some parameters what the fetched ones are more than `since`, which becomes them.

        `buffers_since`: the same of the model's buffers; None: none were fetched.
        """
        fetched = self._spare.flat
        for run in runs:
            part, before = slice(run.first, run.end), since[run.first : run.end]
            before.sub_(fetched.tensor[part])
            self.parameters[part].sub_(before)
            before.copy_(fetched.tensor[part])
        self._spare.release()
        if buffers_since is not None:
            self._incoming_buffers.scatter_change(buffers_since)

    def _first_fetch(self) -> dict[Vector, FlatVector]:
        vectors = {self.vector: self._current.flat, **self._incoming_buffers.vectors}
        if self._frozen is not None:
            vectors[self._frozen_vector] = self._frozen.flat
        return vectors

    def _half(self, name: str, vector: Vector, narrow: FlatVector | None = None) -> "_Half":
        flat = self._allocate(name, vector)
        views = flat.views(self.tensors.specs(vector))
        return _Half(flat, views, None if narrow is None else over(narrow, flat.tensor))

    def _show(self, half: "_Half") -> None:
        for parameter, view in zip(self.trainable, half.views, strict=True):
            parameter.data = view

    def _take_over(self) -> None:
        halves = {self.vector: self._current, self._frozen_vector: self._frozen}
        for vector, half in halves.items():
            if half is None:
                continue
            for tensor, view in zip(self.tensors.tensors(vector), half.views, strict=True):
                view.copy_(tensor.data)
                if tensor.dtype == view.dtype:
                    tensor.data = view


class _Half(NamedTuple):
    """Parameters where the model computes, or has computed."""

    flat: FlatVector
    views: list[Tensor]
    narrow: FlatVector | None = None
    """The same, as fetches that are rounded bring them."""

    def release(self) -> None:
        self.flat.release()
        if self.narrow is not None:
            self.narrow.release()


def _require_finite(specs: Sequence[TensorSpec], host: Tensor) -> None:
    for spec in specs:
        if not values.is_finite(host[spec.first : spec.first + spec.elements]):
            message = (
                f"the parameter '{spec.name}' holds a value that is not a finite number, or beyond "
                "1e18, where training begins; see what the task writes into the model after "
                "Task.model()"
            )
            raise ModelError(message)


def _rounding(formats: Formats) -> Rounding | None:
    if formats.pushed is PushedNumbers.FLOAT32:
        return None
    if formats.keeps_errors:
        return ErrorFeedback(ElementType[formats.pushed.name])
    return Rounding()


def _allocator(tensors: ModelTensors, memory: Memory, device: torch.device) -> Allocate:
    stream = side_stream(device)

    def allocate(name: str, vector: Vector) -> FlatVector:
        _, nbytes = vector.place_of(0, tensors.layout.elements(vector.held))
        buffer = memory.allocate(name, nbytes) if nbytes else _NOTHING
        if stream is None:
            return FlatVector(buffer, DTYPES[vector.element_type])
        return PinnedVector(buffer, DTYPES[vector.element_type], device, stream)

    return allocate
