"""What a replica has to do: work that the coordinator gives when asked, cut into batches."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Set
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import Lease, MemberId, Position, Progress
from disttrain.replica.cancellation import Cancellation

_LOOK_AGAIN_SECONDS = 0.1

Ask: TypeAlias = Callable[[messages.Request], "Future[messages.Reply]"]
"""Sends a request to the coordinator; never blocks."""


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
    lease_samples: int = 0
    """Of the whole lease; 0: not known."""

    @property
    def position(self) -> Position:
        return Position(lease=self.lease, offset=self.end_offset)


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
                lease_samples=lease.end - lease.first,
            )


class Held(Protocol):
    """What a replica has of the coordinator's work, as leases."""

    @property
    def has_room(self) -> bool:
        """Whether more is to be asked for now."""
        ...

    def wait_for_room(self, seconds: float) -> None:
        """Return when more is to be asked for, or after so long at most."""
        ...

    def request(self) -> messages.RequestWork:
        """What to ask."""
        ...

    def hold(self, work: messages.Work) -> None:
        """Take in what was given."""
        ...

    def take(self) -> Lease | None:
        """The next lease to compute; None when there is none."""
        ...


class Source(Protocol):
    """Where the thread that reads the data has its leases from."""

    @property
    def ended(self) -> bool:
        """There will be no more than what is held."""
        ...

    @property
    def dry(self) -> bool:
        """Everything received was given out, and there was no more."""
        ...

    def next_now(self) -> Lease | None:
        """The next lease if one is here."""
        ...

    def next_within(self, seconds: float) -> Lease | None:
        """The next lease; None when there is none in that time. Raises Cancelled."""
        ...


class WorkSource:
    """Asks the coordinator for work ahead of need. Belongs to the thread that reads the data."""

    def __init__(
        self,
        ask: Ask,
        held: Held,
        cancellation: Cancellation,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ended = False
        """There will be no more than what is held."""
        self.dry = False
        """True while everything received was given out and the coordinator had no more."""
        self._ask = ask
        self._held = held
        self._cancellation = cancellation
        self._clock = clock
        self._asked: Future[messages.Reply] | None = None
        self._has_none = False
        """The coordinator's answer was to wait, and nothing was given out since."""
        self._ask_at = 0.0

    def next_now(self) -> Lease | None:
        """The next lease if one is here; asks for further ones in the background."""
        if self._asked is not None and self._asked.done():
            self._receive(self._asked)
        lease = self._held.take()
        self._has_none = self._has_none and lease is None
        if self._asked is None and self._may_ask and self._held.has_room:
            self._asked = self._ask(self._held.request())
        return lease

    def next_within(self, seconds: float) -> Lease | None:
        """The next lease; None when there is none in that time. Raises Cancelled."""
        end = self._clock() + seconds
        while True:
            lease = self.next_now()
            self.dry = lease is None and self._has_none
            left = end - self._clock()
            if lease is not None or self.ended or left <= 0:
                return lease
            self._await_news(min(left, _LOOK_AGAIN_SECONDS))

    def end(self) -> None:
        """Ask for no more; any thread."""
        self.ended = True

    @property
    def _may_ask(self) -> bool:
        return not self.ended and self._clock() >= self._ask_at

    def _await_news(self, seconds: float) -> None:
        if self._asked is not None:
            with suppress(FutureTimeout):
                self._asked.result(seconds)
        elif not self._may_ask:
            self._cancellation.sleep(min(seconds, max(0.0, self._ask_at - self._clock())))
        else:
            self._held.wait_for_room(seconds)
        self._cancellation.check()

    def _receive(self, asked: "Future[messages.Reply]") -> None:
        self._asked = None
        reply = asked.result()
        if not isinstance(reply, messages.Work):
            self.ended = True
            return
        self._held.hold(reply)
        if reply.leases or reply.groups:
            return
        # Never back: the compute thread may have ended it while this answer was on its way.
        self.ended = self.ended or not reply.wait
        self._has_none = True
        self._ask_at = self._clock() + reply.after_seconds


_HELD = 2
"""Leases held at a time: one being computed, one prefetched."""


class HeldLeases:
    """Leases in the order of their numbers. See `work.Held`."""

    def __init__(self, member: MemberId, progress: Callable[[], Progress]) -> None:
        self._member = member
        self._progress = progress
        self._held: deque[Lease] = deque()
        self._last = 0
        self._given_out = 0

    @property
    def has_room(self) -> bool:
        return len(self._held) < _HELD - 1

    def wait_for_room(self, seconds: float) -> None:
        time.sleep(seconds)

    def request(self) -> messages.RequestWork:
        return messages.RequestWork(
            member=self._member,
            held=len(self._held) + self._given_out,
            last_lease=self._last,
            progress=self._progress(),
        )

    def hold(self, work: messages.Work) -> None:
        for lease in work.leases:
            if lease.id > self._last:
                self._held.append(lease)
                self._last = lease.id

    def take(self) -> Lease | None:
        lease = self._held.popleft() if self._held else None
        self._given_out = 0 if lease is None else 1
        return lease


class LostLeases:
    """Leases that were given to others while this replica held them: what is not begun is skipped.

    Belongs to the compute thread; `abandoned` may be read by any.
    """

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

    def give_up(self, leases: Iterable[int], acknowledged: Position) -> None:
        """These end where every push is answered, though the coordinator has not asked for them."""
        own = {lease: acknowledged.offset if lease == acknowledged.lease else 0 for lease in leases}
        others = (ended for ended in self.abandoned if ended.lease not in own)
        ended = (Position(lease=lease, offset=offset) for lease, offset in own.items())
        self.abandoned = (*others, *ended)

    def skips(self, item: WorkItem, reached: Position) -> bool:
        """Whether the batch must not be computed; `reached` is the position of the last one."""
        lost = self._lost()
        # Leases come in the order of their numbers: of an earlier one no batch follows.
        kept = [p for p in self.abandoned if p.lease >= item.lease or p.lease in lost]
        if item.lease in lost and all(ended.lease != item.lease for ended in kept):
            offset = reached.offset if reached.lease == item.lease else 0
            kept.append(Position(lease=item.lease, offset=offset))
        self.abandoned = tuple(kept)
        return any(ended.lease == item.lease for ended in kept)
