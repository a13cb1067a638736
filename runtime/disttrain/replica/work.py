"""What a replica has to do: leases from the coordinator, cut into batches."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from disttrain.coordinator.protocol.fields import Lease, Position


class WorkItem(NamedTuple):
    """One batch: which samples, and where they stand in their lease."""

    lease: int
    epoch: int
    portion: int
    first: int
    """Position of its first sample in the portion's shuffled list."""
    end_offset: int
    """Samples of the lease that are done when this batch is."""
    indices: list[int]

    @property
    def position(self) -> Position:
        """The replica's position after this batch."""
        return Position(lease=self.lease, offset=self.end_offset)


class WorkSource(Protocol):
    """Gives leases, in the order of their numbers. Used by the pipeline's thread."""

    ended: bool
    """There will be no more than what is held."""
    dry: bool
    """True while everything received was given out and the coordinator had no more."""

    def next_now(self) -> Lease | None:
        """The next lease if one is held already; never waits."""
        ...

    def next_within(self, seconds: float) -> Lease | None:
        """The next lease; None when there is none in that time. Raises Halted."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Cutting:
    """How leases become batches."""

    batch_size: int
    portion_indices: Callable[[int, int], NDArray[np.int64]]
    """(portion, epoch) to the portion's shuffled sample numbers."""

    def items(self, lease: Lease) -> Iterator[WorkItem]:
        """The lease's batches in order; only the last may be shorter."""
        indices = self.portion_indices(lease.portion, lease.epoch)
        for first in range(lease.first, lease.end, self.batch_size):
            end = min(first + self.batch_size, lease.end)
            yield WorkItem(
                lease=lease.id,
                epoch=lease.epoch,
                portion=lease.portion,
                first=first,
                end_offset=end - lease.first,
                indices=indices[first:end].tolist(),
            )
