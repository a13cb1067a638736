"""Asks the coordinator for leases, ahead of need: the one being computed and one more are held."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Protocol

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import Lease, MemberId, Progress
from disttrain.replica.halt import Halt

HELD = 2
"""Leases held at a time: one being computed, one prefetched."""

_LOOK_AGAIN_SECONDS = 0.1


class Requests(Protocol):
    """The part of the coordinator's client that asks."""

    def request(self, request: messages.Request) -> "Future[messages.Reply]":
        """Send; never blocks."""
        ...


class LeaseSource:
    """Leases in the order of their numbers; belongs to the pipeline's thread."""

    def __init__(
        self,
        coordinator: Requests,
        member: MemberId,
        progress: Callable[[], Progress],
        halt: Halt,
    ) -> None:
        self._coordinator = coordinator
        self._member = member
        self._progress = progress
        self._halt = halt
        self._held: deque[Lease] = deque()
        self._last = 0
        self._asked: Future[messages.Reply] | None = None
        self._ended = False
        self._given_out = 0
        self.dry = False
        """True while everything received was given out and the coordinator had no more."""

    def next_now(self) -> Lease | None:
        """The next lease if one is here; asks for further ones in the background."""
        if self._asked is not None and self._asked.done():
            self._receive(self._asked)
        lease = self._held.popleft() if self._held else None
        self._given_out = 0 if lease is None else 1
        self._ask()
        return lease

    def wait_for_next(self) -> Lease | None:
        """The next lease; None when the coordinator says that there will be none."""
        while (lease := self.next_now()) is None:
            if self._ended:
                return None
            self._await_answer()
        self.dry = False
        return lease

    def end(self) -> None:
        """Ask for no more; any thread."""
        self._ended = True

    def _ask(self) -> None:
        if self._asked is None and not self._ended and len(self._held) < HELD - 1:
            self._asked = self._coordinator.request(
                messages.RequestWork(
                    member=self._member,
                    held=len(self._held) + self._given_out,
                    last_lease=self._last,
                    progress=self._progress(),
                )
            )

    def _await_answer(self) -> None:
        asked = self._asked
        if asked is None:
            return None
        try:
            reply = asked.result(_LOOK_AGAIN_SECONDS)
        except FutureTimeout:
            return self._halt.check()
        if isinstance(reply, messages.Work) and not reply.leases and reply.wait:
            self.dry = True
            self._halt.sleep(reply.after_seconds)
        return None

    def _receive(self, asked: "Future[messages.Reply]") -> None:
        self._asked = None
        reply = asked.result()
        if not isinstance(reply, messages.Work):
            self._ended = True
            return
        for lease in reply.leases:
            if lease.id > self._last:
                self._held.append(lease)
                self._last = lease.id
        # Never back: the compute thread may have ended it while this answer was on its way.
        if not reply.wait and not reply.leases:
            self._ended = True
