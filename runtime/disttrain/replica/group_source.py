"""Asks the coordinator for groups of portions, ahead of need, and gives their portions out."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import Lease, MemberId, Progress
from disttrain.replica.halt import Halt
from disttrain.replica.held_groups import HeldGroups
from disttrain.replica.leases import Requests

_LOOK_AGAIN_SECONDS = 0.1


class GroupSource:
    """A `work.WorkSource`: each portion is a lease whose id is the number of its group's taking.

    Belongs to the pipeline's thread.
    """

    def __init__(
        self,
        coordinator: Requests,
        member: MemberId,
        held: HeldGroups,
        progress: Callable[[], Progress],
        portion_samples: Callable[[int], int],
        halt: Halt,
    ) -> None:
        self._coordinator = coordinator
        self._member = member
        self._held = held
        self._progress = progress
        self._portion_samples = portion_samples
        self._halt = halt
        self._portions: deque[Lease] = deque()
        self._asked: Future[messages.Reply] | None = None
        self._ended = False

    def next_now(self) -> Lease | None:
        """The next portion if one is here; asks for further groups in the background."""
        if self._asked is not None and self._asked.done():
            self._receive(self._asked)
        if self._asked is None and not self._ended and self._held.has_room:
            self._asked = self._coordinator.request(self._request())
        while self._portions:
            portion = self._portions.popleft()
            if self._held.get(portion.id) is not None:
                return portion
        return None

    def wait_for_next(self) -> Lease | None:
        """The next portion; None when the coordinator says that there will be none."""
        while (portion := self.next_now()) is None:
            if self._ended:
                return None
            self._await_answer()
        return portion

    def _request(self) -> messages.RequestWork:
        attempts = self._held.attempts
        return messages.RequestWork(
            member=self._member,
            held=len(attempts),
            last_lease=0,
            progress=self._progress(),
            attempts=attempts,
        )

    def _await_answer(self) -> None:
        asked = self._asked
        if asked is None:
            self._held.wait_for_room(_LOOK_AGAIN_SECONDS)
            return self._halt.check()
        try:
            reply = asked.result(_LOOK_AGAIN_SECONDS)
        except FutureTimeout:
            return self._halt.check()
        if isinstance(reply, messages.Work) and not reply.groups and reply.wait:
            self._halt.sleep(reply.after_seconds)
        return None

    def _receive(self, asked: "Future[messages.Reply]") -> None:
        self._asked = None
        reply = asked.result()
        if not isinstance(reply, messages.Work):
            self._ended = True
            return
        for group in reply.groups:
            number = self._held.take(group)
            if number is not None:
                self._portions.extend(self._lease(number, one) for one in range(*group.portions))
        if not reply.wait and not reply.groups:
            self._ended = True

    def _lease(self, number: int, portion: int) -> Lease:
        samples = self._portion_samples(portion)
        return Lease(id=number, epoch=0, portion=portion, first=0, end=samples)
