"""Groups of portions in a replica: those that it holds, and the way of their gradients."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import Lease, MemberId, Progress
from disttrain.coordinator.protocol.messages import GroupDone, GroupLease
from disttrain.parameter_server.client import Stage
from disttrain.parameter_server.errors import EvaluationOver
from disttrain.replica.agreement import ALONE, Act, Tell, nobody
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.connection import Connection
from disttrain.replica.flat_vector import Gradient
from disttrain.replica.work import Ask
from disttrain.sandblaster.batch.groups import Result as GroupResult
from disttrain.task.loss import LossFigures

T = TypeVar("T")

HELD = 2
"""Groups at a time that are not computed: one that is being, and the next one, prefetched."""
_PAUSE_SECONDS = 0.05
"""After a group of an evaluation that is over was given: a shard was lost, and the coordinator does
not know it yet."""
GRADIENTS = 2
"""One that is computed, one on its way."""
_LOOK_AGAIN_SECONDS = 0.1


class HeldGroups:
    """The groups that a replica has: until the coordinator has the result. See `work.Held`.

    A group that was dropped may be given out again under the same attempt. So that nothing read
    for the first time is taken for a part of the second, each grant has a number of its own,
    which its portions have as leases. May be used by any thread, but for the portions, which
    belong to the one that reads the data.
    """

    def __init__(
        self,
        member: MemberId,
        progress: Callable[[], Progress],
        portion_samples: Callable[[int], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._member = member
        self._progress = progress
        self._portion_samples = portion_samples
        self._portions: deque[Lease] = deque()
        self._room = threading.Condition()
        """Guards everything, and is notified when there may be room for another group."""
        self._groups: dict[int, GroupLease] = {}
        self._computed: set[int] = set()
        self._grants = 0
        self._over = 0
        """The newest evaluation that is over, as far as is known here."""
        self._pause_until = 0.0

    def hold(self, work: messages.Work) -> None:
        for group in work.groups:
            number = self._take_in(group)
            if number is not None:
                self._portions.extend(self._lease(number, one) for one in range(*group.portions))

    def take(self) -> Lease | None:
        while self._portions:
            portion = self._portions.popleft()
            if self.get(portion.id) is not None:
                return portion
        return None

    def request(self) -> messages.RequestWork:
        attempts = self.attempts
        return messages.RequestWork(
            member=self._member,
            held=len(attempts),
            last_lease=0,
            progress=self._progress(),
            attempts=attempts,
        )

    def get(self, number: int) -> GroupLease | None:
        """The group of a grant; None if it was dropped."""
        return self._groups.get(number)

    def computed(self, number: int) -> None:
        """Its gradient is on its way: there is room for another group."""
        with self._room:
            self._computed.add(number)
            self._room.notify_all()

    def done(self, number: int) -> None:
        with self._room:
            self._forget(number)

    def drop(self, evaluation: int) -> None:
        """This evaluation is over: forget its groups, and those of earlier ones."""
        with self._room:
            for number in [n for n, held in self._groups.items() if held.evaluation <= evaluation]:
                self._forget(number)
            self._over = max(self._over, evaluation)
            self._room.notify_all()

    @property
    def to_compute(self) -> int:
        with self._room:
            return len(self._groups) - len(self._computed)

    @property
    def has_room(self) -> bool:
        with self._room:
            return self.to_compute < HELD and self._clock() >= self._pause_until

    def wait_for_room(self, seconds: float) -> None:
        with self._room:
            pause = self._pause_until - self._clock()
            self._room.wait_for(
                lambda: self.has_room, min(pause, seconds) if pause > 0 else seconds
            )

    @property
    def attempts(self) -> tuple[int, ...]:
        with self._room:
            return tuple(held.attempt for held in self._groups.values())

    def _take_in(self, group: GroupLease) -> int | None:
        """The number of this grant; None for an attempt that is held already."""
        with self._room:
            if any(held.attempt == group.attempt for held in self._groups.values()):
                return None
            if group.evaluation <= self._over:
                self._pause_until = self._clock() + _PAUSE_SECONDS
            self._grants += 1
            self._groups[self._grants] = group
            return self._grants

    def _lease(self, number: int, portion: int) -> Lease:
        samples = self._portion_samples(portion)
        return Lease(id=number, epoch=0, portion=portion, first=0, end=samples)

    def _forget(self, number: int) -> None:
        self._groups.pop(number, None)
        self._computed.discard(number)


@dataclass(kw_only=True, slots=True)
class GroupSum:
    """What was computed of a group so far."""

    number: int
    """Of its grant, see `HeldGroups`."""
    group: GroupLease
    gradient: Gradient
    next_portion: int
    loss: float = 0.0
    """Sum over the samples."""
    samples: int = 0
    count: float | None = None
    """What the loss is a sum of, if not the samples."""

    def add(self, samples: int, found: LossFigures) -> None:
        counted = samples if found.count is None else found.count
        self.loss += found.mean * counted
        self.samples += samples
        if found.count is not None:
            self.count = (self.count or 0.0) + found.count
        self.next_portion += 1

    @property
    def is_complete(self) -> bool:
        return self.next_portion == self.group.portions[1]


class Sums:
    """Gradients of groups, and their way to this process's shards. For the compute thread."""

    def __init__(self, connection: Connection) -> None:
        self.model = connection.model
        self._connection = connection
        self._free = self.model.gradients(GRADIENTS)

    def begin(self) -> Gradient | None:
        """Memory for a group's gradient, all zero; None as long as all of it is on its way."""
        if not self._free:
            return None
        gradient = self._free.pop()
        gradient.gradient.tensor.zero_()
        self.model.collect_gradients_in(gradient.gradient_views)
        return gradient

    def free(self, gradient: Gradient) -> None:
        """It is on its way no more, or no shard is to see it."""
        self._free.append(gradient)

    def send(
        self,
        gradient: Gradient,
        attempt: int,
        evaluation: int,
        group: int,
        then: Callable[[tuple[int, ...]], T],
    ) -> "Future[T]":
        """What `then` gives, in the push thread, of the incarnations of the shards that have it.

        The next group may keep the compute thread busy. The future may have EvaluationOver.
        """
        stage = Stage(
            attempt=attempt,
            evaluation=evaluation,
            group=group,
            vector=self.model.vector,
            gradient=gradient.gradient.buffer,
        )
        gradient.gradient.leave()
        return self._connection.pushes.begin(lambda: then(self._send(gradient, stage)))

    def _send(self, gradient: Gradient, stage: Stage) -> tuple[int, ...]:
        pushes, began = self._connection.pushes, time.perf_counter()
        gradient.gradient.wait_left()
        shards = pushes.client.stage(stage)
        pushes.transfers.add(time.perf_counter() - began, stage.gradient.nbytes)
        return shards


def everybodys(connection: Connection, sent: "Future[tuple[int, ...]]") -> tuple[int, ...]:
    """The incarnations of all shards that have a gradient of the replica, once all have it.

    `sent`: of this process's own shards. Raises EvaluationOver.
    """
    agreement, client = connection.agreement, connection.pushes.client
    error = outcome(sent, connection.cancellation)
    if not agreement.all(error is None):
        raise error or EvaluationOver("a shard of another partition has heard of its end")
    own = dict(zip(client.shards, sent.result(), strict=True))
    return agreement.put_together(own, client.all_shards)


def outcome(future: "Future[Any]", cancellation: Cancellation) -> BaseException | None:
    """What it ended with, once it has; None: well. Raises what ends the waits of this process."""
    while not wait([future], _LOOK_AGAIN_SECONDS).done:
        cancellation.check()
    return future.exception()


class GroupStaging:
    """Belongs to the compute thread; `samples` may be read by any."""

    def __init__(
        self,
        connection: Connection,
        ask: Ask,
        member: MemberId,
        held: HeldGroups,
        tell: Tell = nobody,
    ) -> None:
        """`tell`: lets other processes of the replica do the same."""
        self._let_all = tell
        self.model = connection.model
        self._connection = connection
        self._ask = ask
        self._member = member
        self._held = held
        self._sums = Sums(connection)
        self._sent: list[tuple[GroupSum, Future[Any]]] = []
        self._told: list[tuple[GroupSum, Future[messages.Reply]]] = []
        self.samples = 0
        """Of the groups that the coordinator has been told of."""
        self.groups = 0

    def begin(self, number: int, group: GroupLease) -> GroupSum | None:
        """A group's sum, with nothing in it; None as long as all memory is on its way."""
        gradient = self._sums.begin()
        if gradient is None:
            return None
        self._let_all(Act.BEGIN_GROUP)
        return GroupSum(
            number=number, group=group, gradient=gradient, next_portion=group.portions[0]
        )

    def begin_portion(self) -> None:
        """The next one of the group is computed with the buffers that were fetched."""
        self._let_all(Act.BEGIN_STEP)
        self.model.restore_buffers()

    def abandon(self, unfinished: GroupSum) -> None:
        """Drop what no shard has seen."""
        self._let_all(Act.ABANDON_GROUP)
        self._sums.free(unfinished.gradient)

    def send(self, complete: GroupSum) -> None:
        """Begin its way to the shards, and from there the coordinator is told at once."""
        self._held.computed(complete.number)
        group = complete.group
        names = group.attempt, group.evaluation, group.group
        self._let_all(Act.SEND_GROUP, *names)
        # Alone, without waiting for the compute thread.
        then = partial(self._tell, complete) if self._is_alone else as_it_is
        self._sent.append((complete, self._sums.send(complete.gradient, *names, then)))

    @property
    def _is_alone(self) -> bool:
        return self._connection.agreement is ALONE

    def settle(self) -> None:
        """Take note of what the shards and the coordinator have; waits for those of others alone.

        Raises Cancelled, or what ended a thread.
        """
        self._connection.cancellation.check()
        # In their order, in which other processes of the replica take note of them.
        for one in [*takewhile(lambda one: one[1].done(), self._sent)]:
            self._sent.remove(one)
            self._arrived(*one)
        for told in [told for told in self._told if told[1].done()]:
            self._told.remove(told)
            told[1].result()
            self._held.done(told[0].number)
            self.samples += told[0].samples
            self.groups += 1

    def wait(self, seconds: float) -> None:
        wait(self._under_way(), seconds, "FIRST_COMPLETED")

    def drain(self) -> None:
        """Return when nothing is under way. Raises Cancelled."""
        while self._under_way():
            self.wait(_LOOK_AGAIN_SECONDS)
            self.settle()

    def _under_way(self) -> list["Future[Any]"]:
        return [one[1] for one in self._sent] + [told[1] for told in self._told]

    def _arrived(self, staged: GroupSum, future: "Future[Any]") -> None:
        self._sums.free(staged.gradient)
        try:
            if self._is_alone:
                self._told.append((staged, future.result()))
                return
            self._let_all(Act.GROUP_SENT)
            self._told.append((staged, self._tell(staged, everybodys(self._connection, future))))
        except EvaluationOver:
            self._held.drop(staged.group.evaluation)

    def _tell(self, complete: GroupSum, shards: tuple[int, ...]) -> "Future[messages.Reply]":
        """The coordinator, that these incarnations of shards have it."""
        result = GroupResult(
            attempt=complete.group.attempt,
            evaluation=complete.group.evaluation,
            loss_sum=complete.loss,
            samples=complete.samples,
            count=complete.count,
            shards=shards,
        )
        return self._ask(GroupDone(member=self._member, result=result))


def as_it_is(shards: tuple[int, ...]) -> tuple[int, ...]:
    return shards
