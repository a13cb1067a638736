"""Gradients of groups: their memory, and their way to the shards and the coordinator."""

from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Any

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.messages import GroupDone, GroupLease
from disttrain.parameter_server.client import Stage
from disttrain.parameter_server.errors import EvaluationOver
from disttrain.replica.batch_connection import BatchConnection
from disttrain.replica.flat_vector import Gradient
from disttrain.replica.held_groups import HeldGroups
from disttrain.replica.requested_work import Requests
from disttrain.sandblaster.batch.groups import Result as GroupResult
from disttrain.task.loss import LossFigures

GRADIENTS = 2
"""One that is computed, one on its way."""
_LOOK_AGAIN_SECONDS = 0.1


@dataclass(kw_only=True, slots=True)
class GroupSum:
    """What was computed of a group so far."""

    number: int
    """Of its taking, see `HeldGroups`."""
    group: GroupLease
    gradient: Gradient
    next_portion: int
    loss: float = 0.0
    """Sum over the samples."""
    samples: int = 0
    count: float | None = None
    """What the loss is a sum of, if not the samples."""

    def add(self, samples: int, found: LossFigures) -> None:
        """Add a portion's loss."""
        counted = samples if found.count is None else found.count
        self.loss += found.mean * counted
        self.samples += samples
        if found.count is not None:
            self.count = (self.count or 0.0) + found.count
        self.next_portion += 1

    @property
    def is_complete(self) -> bool:
        """Whether every portion of the group is in it."""
        return self.next_portion == self.group.portions[1]


class GroupStaging:
    """Belongs to the compute thread; `samples` may be read by any."""

    def __init__(
        self,
        connection: BatchConnection,
        coordinator: Requests,
        member: MemberId,
        held: HeldGroups,
    ) -> None:
        self.model = connection.model
        self._connection = connection
        self._coordinator = coordinator
        self._member = member
        self._held = held
        self._free = self.model.gradients(GRADIENTS)
        self._sent: list[tuple[GroupSum, Future[Future[messages.Reply]]]] = []
        self._told: list[tuple[GroupSum, Future[messages.Reply]]] = []
        self.samples = 0
        """Of the groups that the coordinator has been told of."""
        self.groups = 0

    def begin(self, number: int, group: GroupLease) -> GroupSum | None:
        """Memory for a group's gradient, all zero; None as long as all of it is on its way."""
        if not self._free:
            return None
        gradient = self._free.pop()
        gradient.gradient.tensor.zero_()
        self.model.collect_gradients_in(gradient.gradient_views)
        return GroupSum(
            number=number, group=group, gradient=gradient, next_portion=group.portions[0]
        )

    def abandon(self, unfinished: GroupSum) -> None:
        """Drop what no shard has seen."""
        self._free.append(unfinished.gradient)

    def send(self, complete: GroupSum) -> None:
        """Begin its way to the shards, and from there the coordinator is told at once."""
        self._held.computed(complete.number)
        group = complete.group
        stage = Stage(
            attempt=group.attempt,
            evaluation=group.evaluation,
            group=group.group,
            vector=self.model.vector,
            gradient=complete.gradient.gradient.buffer,
        )
        tell = partial(self._tell, complete)
        self._sent.append((complete, self._connection.stage(stage, complete.gradient, tell)))

    def settle(self) -> None:
        """Take note of what the shards and the coordinator have; never waits.

        Raises what ended a thread.
        """
        for one in [one for one in self._sent if one[1].done()]:
            self._sent.remove(one)
            self._arrived(*one)
        for told in [told for told in self._told if told[1].done()]:
            self._told.remove(told)
            told[1].result()
            self._held.done(told[0].number)
            self.samples += told[0].samples
            self.groups += 1

    def wait(self, seconds: float) -> None:
        """Return when something of what is under way has ended, or after so long."""
        wait(self._under_way(), seconds, "FIRST_COMPLETED")

    def drain(self) -> None:
        """Return when nothing is under way. Raises Halted."""
        while self._under_way():
            self._connection.halt.check()
            self.wait(_LOOK_AGAIN_SECONDS)
            self.settle()

    def _under_way(self) -> list["Future[Any]"]:
        return [one[1] for one in self._sent] + [told[1] for told in self._told]

    def _arrived(self, staged: GroupSum, future: "Future[Future[messages.Reply]]") -> None:
        self._free.append(staged.gradient)
        try:
            self._told.append((staged, future.result()))
        except EvaluationOver:
            self._held.drop(staged.group.evaluation)

    def _tell(self, staged: GroupSum, shards: tuple[int, ...]) -> "Future[messages.Reply]":
        """Called by the thread that sent it: the next group may keep the compute thread busy."""
        result = GroupResult(
            attempt=staged.group.attempt,
            evaluation=staged.group.evaluation,
            loss_sum=staged.loss,
            samples=staged.samples,
            count=staged.count,
            shards=shards,
        )
        return self._coordinator.request(GroupDone(member=self._member, result=result))
