"""Asks the coordinator for work ahead of need: for leases, or for groups of portions."""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Protocol

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import Lease, MemberId, Progress
from disttrain.replica.halt import Halt
from disttrain.replica.held_groups import HeldGroups

_HELD = 2
"""Leases held at a time: one being computed, one prefetched."""
_LOOK_AGAIN_SECONDS = 0.1


class Requests(Protocol):
    """The part of the coordinator's client that asks."""

    def request(self, request: messages.Request) -> "Future[messages.Reply]":
        """Send; never blocks."""
        ...


class RequestedWork(ABC):
    """A `work.WorkSource`. Belongs to the thread that reads the data."""

    def __init__(
        self, coordinator: Requests, halt: Halt, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.ended = False
        """There will be no more than what is held."""
        self.dry = False
        """True while everything received was given out and the coordinator had no more."""
        self._coordinator = coordinator
        self._halt = halt
        self._clock = clock
        self._asked: Future[messages.Reply] | None = None
        self._has_none = False
        """The coordinator's answer was to wait, and nothing was given out since."""
        self._ask_at = 0.0

    def next_now(self) -> Lease | None:
        """The next lease if one is here; asks for further ones in the background."""
        if self._asked is not None and self._asked.done():
            self._receive(self._asked)
        lease = self._take()
        self._has_none = self._has_none and lease is None
        if self._asked is None and self._may_ask and self._has_room:
            self._asked = self._coordinator.request(self._request())
        return lease

    def next_within(self, seconds: float) -> Lease | None:
        """The next lease; None when there is none in that time. Raises Halted."""
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
    @abstractmethod
    def _has_room(self) -> bool:
        """Whether more may be held."""

    @abstractmethod
    def _take(self) -> Lease | None:
        """The next of what is held."""

    @abstractmethod
    def _request(self) -> messages.RequestWork:
        """What to ask."""

    @abstractmethod
    def _hold(self, work: messages.Work) -> None:
        """Take in what was given."""

    def _await_room(self, seconds: float) -> None:
        self._halt.sleep(seconds)

    @property
    def _may_ask(self) -> bool:
        return not self.ended and self._clock() >= self._ask_at

    def _await_news(self, seconds: float) -> None:
        if self._asked is not None:
            with suppress(FutureTimeout):
                self._asked.result(seconds)
        elif not self._may_ask:
            self._halt.sleep(min(seconds, max(0.0, self._ask_at - self._clock())))
        else:
            self._await_room(seconds)
        self._halt.check()

    def _receive(self, asked: "Future[messages.Reply]") -> None:
        self._asked = None
        reply = asked.result()
        if not isinstance(reply, messages.Work):
            self.ended = True
            return
        self._hold(reply)
        if reply.leases or reply.groups:
            return
        # Never back: the compute thread may have ended it while this answer was on its way.
        self.ended = self.ended or not reply.wait
        self._has_none = True
        self._ask_at = self._clock() + reply.after_seconds


class LeaseSource(RequestedWork):
    """Leases in the order of their numbers."""

    def __init__(
        self,
        coordinator: Requests,
        member: MemberId,
        progress: Callable[[], Progress],
        halt: Halt,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(coordinator, halt, clock)
        self._member = member
        self._progress = progress
        self._held: deque[Lease] = deque()
        self._last = 0
        self._given_out = 0

    @property
    def _has_room(self) -> bool:
        return len(self._held) < _HELD - 1

    def _take(self) -> Lease | None:
        lease = self._held.popleft() if self._held else None
        self._given_out = 0 if lease is None else 1
        return lease

    def _request(self) -> messages.RequestWork:
        return messages.RequestWork(
            member=self._member,
            held=len(self._held) + self._given_out,
            last_lease=self._last,
            progress=self._progress(),
        )

    def _hold(self, work: messages.Work) -> None:
        for lease in work.leases:
            if lease.id > self._last:
                self._held.append(lease)
                self._last = lease.id


class GroupSource(RequestedWork):
    """Each portion is a lease whose id is the number of its group's taking."""

    def __init__(
        self,
        coordinator: Requests,
        member: MemberId,
        held: HeldGroups,
        progress: Callable[[], Progress],
        portion_samples: Callable[[int], int],
        halt: Halt,
    ) -> None:
        super().__init__(coordinator, halt, held.clock)
        self._member = member
        self._held = held
        self._progress = progress
        self._portion_samples = portion_samples
        self._portions: deque[Lease] = deque()

    @property
    def _has_room(self) -> bool:
        return self._held.has_room

    def _await_room(self, seconds: float) -> None:
        self._held.wait_for_room(seconds)

    def _take(self) -> Lease | None:
        while self._portions:
            portion = self._portions.popleft()
            if self._held.get(portion.id) is not None:
                return portion
        return None

    def _request(self) -> messages.RequestWork:
        attempts = self._held.attempts
        return messages.RequestWork(
            member=self._member,
            held=len(attempts),
            last_lease=0,
            progress=self._progress(),
            attempts=attempts,
        )

    def _hold(self, work: messages.Work) -> None:
        for group in work.groups:
            number = self._held.take(group)
            if number is not None:
                self._portions.extend(self._lease(number, one) for one in range(*group.portions))

    def _lease(self, number: int, portion: int) -> Lease:
        samples = self._portion_samples(portion)
        return Lease(id=number, epoch=0, portion=portion, first=0, end=samples)
