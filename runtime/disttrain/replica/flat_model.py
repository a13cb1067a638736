"""A model whose parameters and gradients are views into flat vectors: a step gathers nothing.

Memory: parameters, one incoming copy that changes places with them, and the gradient buffers. All
methods belong to the compute thread unless they say otherwise.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from disttrain.holder import values
from disttrain.holder.values import DTYPES
from disttrain.job.strategy_kind import Precision
from disttrain.replica import model_tensors
from disttrain.replica.flat_vector import (
    Allocate,
    FlatVector,
    Gradient,
    GradientViews,
    ModelBuffers,
    Outgoing,
    PinnedVector,
    side_stream,
)
from disttrain.replica.model_tensors import ModelTensors
from disttrain.state.factors import Factors, within
from disttrain.state.layout import TensorSpec
from disttrain.state.vector import FROZEN, PARAMETERS, Vector
from disttrain.task.errors import ModelError
from disttrain.transport.interface import Buffer, Memory


class FlatModel(GradientViews):
    """Puts a model's parameters into flat vectors, and exchanges them when others were fetched."""

    def __init__(
        self,
        model: nn.Module,
        memory: Memory,
        device: torch.device,
        *,
        outgoing_buffers: int,
        precision: Precision = Precision.FLOAT32,
        factors: Sequence[Factors] = (),
    ) -> None:
        """`factors`: of the job, for parameters with a rate or weight decay of their own."""
        self.model = model.to(device)
        self.device = device
        super().__init__(model_tensors.describe(model, precision))
        self.factors = factors
        self._decay_factors = [
            next(within(factors, spec.first, spec.first + 1)).weight_decay
            for spec in self.tensors.specs(self.vector)
        ]
        self._allocate = _allocator(self.tensors, memory, device)
        self._current = self._half("parameters-a", self.vector)
        self._spare = self._half("parameters-b", self.vector)
        self._frozen_vector = self.vector.beside(FROZEN)
        has_frozen = self.tensors.layout.elements(self._frozen_vector)
        self._frozen = self._half("frozen", self._frozen_vector) if has_frozen else None
        self._incoming_buffers = ModelBuffers(self.tensors, self._allocate, "incoming")
        # Shards may want values while a fetch is under way, or waits to be taken.
        self._uploaded_buffers = ModelBuffers(self.tensors, self._allocate, "uploaded")
        self.outgoing = [
            Outgoing(self.tensors, self._allocate, number) for number in range(outgoing_buffers)
        ]
        self._take_over()

    @property
    def parameters(self) -> Tensor:
        """The flat parameters that the model computes with now; others after `adopt`."""
        return self._current[0].tensor

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
            self._gradient_views, self._current[1], self._decay_factors, present, strict=True
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
            torch._foreach_copy_(self.tensors.tensors(self._frozen_vector), self._frozen[1])

    def fetch_into(self, name: str = PARAMETERS) -> dict[Vector, Buffer]:
        """Where fetched values go: memory that computing does not use (fetch thread).

        `name`: as in `first_fetch_into`.
        """
        return self._into(name, self._fetched())

    def land(self) -> None:
        """Bring fetched values from the host to where the model computes (fetch thread)."""
        for vector in self._fetched().values():
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
        return self._spare[0].buffer

    def land_trial(self) -> None:
        """Bring a fetched point from the host to where the model computes (fetch thread)."""
        self._spare[0].arrive()

    def restore_buffers(self) -> None:
        """Make the model's buffers what was fetched last, whatever a forward pass did to them."""
        self._incoming_buffers.restore()

    def adopt(self, *, buffers: bool) -> None:
        """Compute with the fetched values from now on; between two steps only."""
        self._current[0].release()
        self._current, self._spare = self._spare, self._current
        for parameter, view in zip(self.trainable, self._current[1], strict=True):
            parameter.data = view
        if buffers:
            self._incoming_buffers.scatter()

    def _into(self, name: str, fetched: Mapping[Vector, FlatVector]) -> dict[Vector, Buffer]:
        own = self.vector
        return {
            (own.beside(name) if vector == own else vector): flat.buffer
            for vector, flat in fetched.items()
        }

    def _first_fetch(self) -> dict[Vector, FlatVector]:
        vectors = {self.vector: self._current[0], **self._incoming_buffers.vectors}
        if self._frozen is not None:
            vectors[self._frozen_vector] = self._frozen[0]
        return vectors

    def _fetched(self) -> dict[Vector, FlatVector]:
        return {self.vector: self._spare[0], **self._incoming_buffers.vectors}

    def _half(self, name: str, vector: Vector) -> tuple[FlatVector, list[Tensor]]:
        flat = self._allocate(name, vector)
        return flat, flat.views(self.tensors.specs(vector))

    def _take_over(self) -> None:
        halves = {self.vector: self._current, self._frozen_vector: self._frozen}
        for vector, half in halves.items():
            if half is None:
                continue
            for tensor, view in zip(self.tensors.tensors(vector), half[1], strict=True):
                view.copy_(tensor.data)
                if tensor.dtype == view.dtype:
                    tensor.data = view


def _require_finite(specs: Sequence[TensorSpec], host: Tensor) -> None:
    for spec in specs:
        if not values.is_finite(host[spec.first : spec.first + spec.elements]):
            message = (
                f"the parameter '{spec.name}' holds a value that is not a finite number, or beyond "
                "1e18, where training begins; see what the task writes into the model after "
                "Task.model()"
            )
            raise ModelError(message)


def _allocator(tensors: ModelTensors, memory: Memory, device: torch.device) -> Allocate:
    stream = side_stream(device)

    def allocate(name: str, vector: Vector) -> FlatVector:
        buffer = memory.allocate(name, tensors.layout.elements(vector) * vector.element_bytes)
        if stream is None:
            return FlatVector(buffer, DTYPES[vector.element_type])
        return PinnedVector(buffer, DTYPES[vector.element_type], device, stream)

    return allocate
