"""A flat vector where the model computes, with the host memory that the transport sends and fills.

On the CPU both are the same memory. On a GPU the host memory is pinned where it lies (the buffer
belongs to the transport) and copies run on a stream of their own, so that computing goes on.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from disttrain.state.layout import TensorSpec
from disttrain.transport.interface import Buffer


class FlatVector:
    """A vector on the CPU: computing, sending and receiving use the same memory."""

    def __init__(self, buffer: Buffer, dtype: torch.dtype) -> None:
        self.buffer = buffer
        self.host = torch.frombuffer(buffer.view, dtype=dtype)
        self.tensor = self.host

    def views(self, specs: Sequence[TensorSpec]) -> list[Tensor]:
        """One view of `tensor` per spec, in the spec's shape."""
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
        _pin(self.host)
        self.tensor = torch.zeros(len(self.host), dtype=dtype, device=device)
        self._stream = stream
        self._computed = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def leave(self) -> None:
        """Queue the copy behind what computes the values."""
        self._computed.record()
        self._stream.wait_event(self._computed)
        with torch.cuda.stream(self._stream):
            self.host.copy_(self.tensor, non_blocking=True)
        self._copied.record(self._stream)

    def wait_left(self) -> None:
        """Wait for the copy alone; the compute stream goes on."""
        self._copied.synchronize()

    def arrive(self) -> None:
        """Copy after the kernels that still read the old values."""
        self._stream.wait_event(self._computed)
        with torch.cuda.stream(self._stream):
            self.tensor.copy_(self.host, non_blocking=True)
        self._copied.record(self._stream)
        self._copied.synchronize()

    def release(self) -> None:
        """Mark the last kernel that reads the values."""
        self._computed.record()


def _pin(host: Tensor) -> None:
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    torch.cuda.check_error(runtime.cudaHostRegister(host.data_ptr(), host.nbytes, 0))


def side_stream(device: torch.device) -> torch.cuda.Stream | None:
    """A stream for copies beside computing; None where there is no GPU."""
    if device.type != "cuda":
        return None
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
