"""Leases that were given to others while this replica held them: what is not begun is skipped."""

from collections.abc import Callable, Set

from disttrain.coordinator.protocol.fields import Position
from disttrain.replica.work import WorkItem


class LostLeases:
    """Belongs to the compute thread; `abandoned` may be read by any."""

    def __init__(self, lost: Callable[[], Set[int]]) -> None:
        """`lost`: the leases that the coordinator gave to others.

        Each until it has heard where the lease ended here.
        """
        self._lost = lost
        self.abandoned: tuple[Position, ...] = ()
        """Where each lost lease ended here for good; those that the coordinator may not know."""

    def given_up(self, acknowledged: Position) -> tuple[Position, ...]:
        """Where lost leases ended, of those whose every push is answered.

        A push under way may never arrive: the lease's end counts as done when it is told.
        """
        return tuple(p for p in self.abandoned if p.offset == 0 or p <= acknowledged)

    def skips(self, item: WorkItem, reached: Position) -> bool:
        """Whether the batch must not be computed; `reached` is the position of the last one."""
        lost = self._lost()
        # Leases come in the order of their numbers: of an earlier one no batch follows.
        kept = [p for p in self.abandoned if p.lease == item.lease or p.lease in lost]
        if item.lease in lost and all(ended.lease != item.lease for ended in kept):
            offset = reached.offset if reached.lease == item.lease else 0
            kept.append(Position(lease=item.lease, offset=offset))
        self.abandoned = tuple(kept)
        return any(ended.lease == item.lease for ended in kept)
