"""Flat vectors where the model computes, and the gradients and buffers that lie in them.

Each has host memory that the transport sends and fills.

On the CPU both are the same memory. On a GPU the host memory is pinned where it lies (the buffer
belongs to the transport) and copies run on a stream of their own, so that computing goes on.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from disttrain.parameter_server import presence
from disttrain.parameter_server.narrowing import Rounding
from disttrain.replica.gradient_check import PresentGradients
from disttrain.replica.model_tensors import ModelTensors
from disttrain.state.layout import TensorSpec
from disttrain.state.placement import Range
from disttrain.state.vector import BUFFERS, Vector
from disttrain.task.errors import ModelError
from disttrain.transport.header import ElementType
from disttrain.transport.interface import Buffer


class FlatVector:
    """A vector on the CPU: computing, sending and receiving use the same memory."""

    def __init__(self, buffer: Buffer, dtype: torch.dtype) -> None:
        self.buffer = buffer
        self.host = torch.empty(0, dtype=dtype)
        if buffer.nbytes:
            # Torch refuses a buffer without bytes, as of a partition that trains nothing.
            self.host = torch.frombuffer(buffer.view, dtype=dtype)
        self.tensor = self.host

    def views(self, specs: Sequence[TensorSpec]) -> list[Tensor]:
        return [
            self.tensor[spec.first : spec.first + spec.elements].view(spec.shape) for spec in specs
        ]

    def leave(self) -> None:
        """Begin the way to the host (compute thread). `tensor` must not change until it left."""

    def wait_left(self) -> None:
        """Return when `host` holds the values (push thread)."""

    def arrive(self) -> None:
        """Bring the values of `host` into `tensor`; return when they are there (fetch thread)."""

    def release(self) -> None:
        """Say that computing needs the values of `tensor` no longer (compute thread)."""


class PinnedVector(FlatVector):
    """A vector on a GPU with a pinned twin on the host."""

    def __init__(
        self, buffer: Buffer, dtype: torch.dtype, device: torch.device, stream: torch.cuda.Stream
    ) -> None:
        super().__init__(buffer, dtype)
        if buffer.nbytes:
            _pin(self.host)
        self.tensor = torch.zeros(len(self.host), dtype=dtype, device=device)
        self._begin(stream)

    def _begin(self, stream: torch.cuda.Stream) -> None:
        self.stream = stream
        self._computed = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def leave(self) -> None:
        """Queue the copy behind what computes the values."""
        self._computed.record()
        self.stream.wait_event(self._computed)
        with torch.cuda.stream(self.stream):
            self.host.copy_(self.tensor, non_blocking=True)
        self._copied.record(self.stream)

    def wait_left(self) -> None:
        """Wait for the copy alone; the compute stream goes on."""
        self._copied.synchronize()

    def arrive(self) -> None:
        """Copy after the kernels that still read the old values."""
        self.stream.wait_event(self._computed)
        with torch.cuda.stream(self.stream):
            self.tensor.copy_(self.host, non_blocking=True)
        self._copied.record(self.stream)
        self._copied.synchronize()

    def release(self) -> None:
        """Mark the last kernel that reads the values."""
        self._computed.record()


class NarrowVector(FlatVector):
    """Of single precision where the model computes, and rounded in the memory that travels."""

    def __init__(self, narrow: FlatVector, tensor: Tensor, rounding: Rounding) -> None:
        """`narrow`: the memory that travels, of as many elements as `tensor`."""
        self.buffer, self.host, self.tensor = narrow.buffer, narrow.host, tensor
        self._rounding = rounding

    def wait_left(self) -> None:
        self._rounding.round(self.tensor, self.host)

    def arrive(self) -> None:
        self.tensor.copy_(self.host)


class PinnedNarrowVector(PinnedVector):
    """The same on a GPU, which rounds: what is copied is shorter, too."""

    def __init__(self, narrow: PinnedVector, tensor: Tensor, rounding: Rounding) -> None:
        self.buffer, self.host, self.tensor = narrow.buffer, narrow.host, tensor
        self._rounding = rounding
        self._narrow = narrow.tensor
        self._begin(narrow.stream)

    def leave(self) -> None:
        self._computed.record()
        self.stream.wait_event(self._computed)
        with torch.cuda.stream(self.stream):
            self._rounding.round(self.tensor, self._narrow)
            self.host.copy_(self._narrow, non_blocking=True)
        self._copied.record(self.stream)

    def arrive(self) -> None:
        self.stream.wait_event(self._computed)
        with torch.cuda.stream(self.stream):
            self._narrow.copy_(self.host, non_blocking=True)
            self.tensor.copy_(self._narrow)
        self._copied.record(self.stream)
        self._copied.synchronize()


_PLAINLY = Rounding()


def over(narrow: FlatVector, tensor: Tensor, rounding: Rounding = _PLAINLY) -> FlatVector:
    """Single precision in `tensor`, whose way is through the memory of what it is rounded to.

    What arrives there is bfloat16.
    """
    if isinstance(narrow, PinnedVector):
        return PinnedNarrowVector(narrow, tensor, rounding)
    return NarrowVector(narrow, tensor, rounding)


def _pin(host: Tensor) -> None:
    """Pin it for as long as this tensor lives.

    The system gives its address out again, and CUDA refuses to pin what it takes for pinned.
    """
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    torch.cuda.check_error(runtime.cudaHostRegister(host.data_ptr(), host.nbytes, 0))
    weakref.finalize(host, runtime.cudaHostUnregister, host.data_ptr()).atexit = False


def side_stream(device: torch.device) -> torch.cuda.Stream | None:
    """A stream for copies beside computing; None where there is no GPU."""
    if device.type != "cuda":
        return None
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


Allocate = Callable[[str, Vector], FlatVector]
"""Makes the memory of a vector, under a name for people."""


class ModelBuffers:
    """Copies of the model's buffers (running statistics and the like) as flat vectors."""

    def __init__(self, tensors: ModelTensors, allocate: Allocate, name: str) -> None:
        present = [v for v in tensors.vectors if v.name == BUFFERS]
        self._tensors = tensors
        self.vectors = {
            v: allocate(f"{name}-buffers-{v.element_type.name.lower()}", v) for v in present
        }
        self.views = {v: self.vectors[v].views(tensors.specs(v)) for v in present}

    def gather(self) -> None:
        """Copy the model's buffers here, and on to the host."""
        for vector, views in self.views.items():
            torch._foreach_copy_(views, self._tensors.tensors(vector))
            self.vectors[vector].leave()

    def restore(self) -> None:
        for vector, views in self.views.items():
            torch._foreach_copy_(self._tensors.tensors(vector), views)

    def scatter(self) -> None:
        """Copy what lies here into the model's buffers; counters never go backwards."""
        for vector, views in self.views.items():
            present, new = self._tensors.tensors(vector), views
            if vector.element_type is ElementType.INT64:
                new = [torch.maximum(v, p) for v, p in zip(views, present, strict=True)]
            torch._foreach_copy_(present, new)
            self.vectors[vector].release()

    def scatter_change(self, since: "ModelBuffers") -> None:
        """Add to the model's buffers what lies here more than in `since`; counters: the larger."""
        for vector, views in self.views.items():
            present, before = self._tensors.tensors(vector), since.views[vector]
            for tensor, new, old in zip(present, views, before, strict=True):
                if vector.element_type is ElementType.INT64:
                    tensor.copy_(torch.maximum(new, tensor))
                else:
                    tensor.add_(new - old)
            self.vectors[vector].release()


class Gradient:
    """Memory for one gradient."""

    def __init__(
        self,
        tensors: ModelTensors,
        allocate: Allocate,
        number: int,
        rounding: Rounding | None = None,
    ) -> None:
        """`rounding`: on its way; None: it travels as it is."""
        vector, name = tensors.trained, f"gradient-{number}"
        self.rounding = rounding
        self.rounded_to = None if rounding is None else rounding.element_type
        self.gradient = allocate(name, vector.rounded(self.rounded_to))
        if rounding is not None:
            wide = torch.zeros(
                tensors.layout.elements(vector),
                dtype=torch.float32,
                device=self.gradient.tensor.device,
            )
            self.gradient = over(self.gradient, wide, rounding)
        self.gradient_views = self.gradient.views(tensors.specs(vector))


class Outgoing(Gradient):
    """One gradient on its way to the shards, with the model's buffers as they were after the step.

    From `leave` until the push is answered nothing may be written to it.
    """

    def __init__(
        self,
        tensors: ModelTensors,
        allocate: Allocate,
        number: int,
        rounding: Rounding | None = None,
    ) -> None:
        super().__init__(tensors, allocate, number, rounding)
        self.beside: dict[Vector, FlatVector] = {}
        """What is pushed with the gradient, as long as it is."""
        self.buffers = ModelBuffers(tensors, allocate, f"outgoing-{number}")

    def leave(self) -> None:
        """Take the model's buffers along and begin the way to the host."""
        self.buffers.gather()
        for vector in (self.gradient, *self.beside.values()):
            vector.leave()

    def wait_left(self) -> None:
        """Return when everything is in host memory (push thread)."""
        self.gradient.wait_left()
        for vector in (*self.beside.values(), *self.buffers.vectors.values()):
            vector.wait_left()


class GradientViews:
    """The trainable parameters of a model, and where backward puts their gradients."""

    def __init__(self, tensors: ModelTensors) -> None:
        self.tensors = tensors
        self.vector = tensors.trained
        """Which vector is trained."""
        self.trainable = tensors.tensors(self.vector)
        """The trainable parameters, in the order of their vector."""
        self._gradient_views: Sequence[Tensor] = ()
        self._present: PresentGradients | None = None

    def watch_gradients(self) -> PresentGradients:
        """Note from now on which parameters have a gradient; costs a call for each in a step."""
        self._present = self._present or PresentGradients(self.trainable)
        return self._present

    @torch.no_grad()
    def mark_absent(self) -> None:
        """Let the step's gradient tell which parameters have none; see `presence`."""
        present = self.watch_gradients().present
        for view, is_there in zip(self._gradient_views, present, strict=True):
            if not is_there:
                view.fill_(presence.MARK)

    def collect_gradients_in(self, views: Sequence[Tensor]) -> None:
        self._gradient_views = views
        self.attach_gradients()

    def attach_gradients(self) -> None:
        """Make every parameter's `grad` its view again, whatever it was."""
        for parameter, view in zip(self.trainable, self._gradient_views, strict=True):
            parameter.grad = view

    def has_gradients_attached(self) -> bool:
        both = zip(self.trainable, self._gradient_views, strict=True)
        return all(parameter.grad is view for parameter, view in both)

    def detach_gradients(self) -> None:
        """Leave the parameters without `grad`: backward makes new ones."""
        for parameter in self.trainable:
            parameter.grad = None

    @torch.no_grad()
    def gather_gradients(self, gradients: Sequence[Tensor | None]) -> None:
        """Bring gradients that may lie elsewhere into the views; no gradient counts as zero."""
        for number, (view, gradient) in enumerate(
            zip(self._gradient_views, gradients, strict=True)
        ):
            if gradient is None:
                view.zero_()
            elif gradient is not view:
                view.copy_(gradient).add_(0.0)  # Which makes -0.0 to 0.
                if self._present is not None:
                    self._present.brought(number)
        self.attach_gradients()


class ChangedBuffers:
    """Which of a model's buffers change in training, and whether shards can share the changes.

    Watches the values that are pushed. What changed once counts as changing for ever; constant
    buffers are not sent.
    """

    def __init__(self, tensors: ModelTensors, initial: Mapping[Vector, FlatVector]) -> None:
        self._specs = {vector: tensors.specs(vector) for vector in initial}
        self._constant = {
            spec.name: _part(initial[vector].host, spec).clone()
            for vector, specs in self._specs.items()
            for spec in specs
        }
        kind = ElementType.INT64
        self._of_counters = next((each for each in initial if each.element_type is kind), None)
        of_counters = self._of_counters
        self._counters = None if of_counters is None else initial[of_counters].host.clone()
        """Whole numbers as they were pushed last."""

    def runs(self, values: Mapping[Vector, FlatVector]) -> dict[Vector, tuple[Range, ...]]:
        """The ranges of each vector that hold changing buffers; neighbours are joined.

        Raises ModelError with the name of a whole-number or bool buffer that has become less.
        """
        if self._of_counters is not None and self._counters is not None:
            self._check_counters(values[self._of_counters].host, self._counters)
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
        assert self._of_counters is not None  # noqa: S101  Who calls this has counters.
        name, index = next(
            (spec.name, spec.first + place)
            for spec in self._specs[self._of_counters]
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
