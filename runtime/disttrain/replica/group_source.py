"""Asks the coordinator for groups of portions, ahead of need, and gives their portions out."""

from collections import deque
from collections.abc import Callable

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import Lease, MemberId, Progress
from disttrain.replica.halt import Halt
from disttrain.replica.held_groups import HeldGroups
from disttrain.replica.requested_work import RequestedWork, Requests


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
        super().__init__(coordinator, halt)
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
