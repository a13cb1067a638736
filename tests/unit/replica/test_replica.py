"""How one incarnation of a replica ends."""

import queue
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from disttrain.coordinator.protocol.commands import (
    Checkpoint,
    Command,
    CommandFailed,
    Drain,
    End,
    NumberedCommand,
    Result,
    ShardWritten,
)
from disttrain.coordinator.protocol.fields import MemberId, Progress
from disttrain.coordinator.protocol.messages import Acknowledged, Joined, Leave
from disttrain.groups.errors import GroupLost
from disttrain.job.spec import FrozenParameters
from disttrain.launch.exit_code import ExitCode
from disttrain.replica import membership as memberships
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.membership import Membership
from disttrain.replica.replica import Replica
from disttrain.transport.header import Role

MEMBER = MemberId(role=Role.REPLICA, index=0, incarnation=1)
JOINED = Joined(member=MEMBER, seed=1)


class Coordinator:
    """Its commands come at once; `told` is what it hears."""

    def __init__(self, *commands: NumberedCommand) -> None:
        self.commands: queue.Queue[NumberedCommand] = queue.Queue()
        self.coming = commands
        self.told: list[object] = []
        self.answers: list[object] = []
        self.hears = True
        self.notices: list[object] = []

    def arrive(self) -> None:
        for command in self.coming:
            self.commands.put(command)

    def answer(self, command: NumberedCommand, result: object) -> None:
        self.told.append(command.order)
        self.answers.append(result)

    def request(self, request: Leave) -> Any:
        self.told.append(request)
        answered: Future[Acknowledged] = Future()
        if self.hears:
            answered.set_result(Acknowledged())
        return answered


class WaitsForShards:
    """A training whose step waits for shards that have ended."""

    def __init__(self, cancellation: Cancellation, coordinator: Coordinator) -> None:
        self._cancellation = cancellation
        self._coordinator = coordinator

    def begin(self, meanwhile: object) -> None:
        del meanwhile

    def train_until(self, ends: object) -> None:
        del ends
        self._coordinator.arrive()
        self._cancellation.cancel()
        self._cancellation.get(queue.SimpleQueue())

    def progress(self) -> Progress:
        return Progress()

    def __getattr__(self, name: str) -> Any:
        return None


def ended_with(coordinator: Coordinator, training: object = None) -> ExitCode:
    cancellation = Cancellation()
    membership = MagicMock(coordinator=coordinator, cancellation=cancellation)
    membership.leave = partial(Membership.leave, membership)
    membership.leave_notices.write = coordinator.notices.append
    tensors = SimpleNamespace(frozen=FrozenParameters.SHARED)
    prepared = SimpleNamespace(task=None, model=None, device=None, tensors=tensors)
    training = training or WaitsForShards(cancellation, coordinator)
    made = Replica(cast(Any, prepared), cast(Any, membership), JOINED, cast(Any, training))
    return made.run()


def command(number: int, what: Command) -> NumberedCommand:
    return NumberedCommand(id=number, order=what)


@pytest.mark.parametrize(
    ("number", "code"), [(7, ExitCode.COMPLETE), (0, ExitCode.RESTART)], ids=["over", "fenced"]
)
def test_the_end_of_the_job_is_heard_in_the_midst_of_a_step(number: int, code: ExitCode) -> None:
    end = End(reason="Diverged")
    coordinator = Coordinator(command(3, Drain()), command(number, end))
    assert ended_with(coordinator) is code
    assert coordinator.told == [end], "what came before it waits for shards, too"


def test_who_is_halted_otherwise_says_so() -> None:
    coordinator = Coordinator()
    assert ended_with(coordinator) is ExitCode.INTERRUPTED
    # How far it came, the shards tell.
    assert coordinator.told == [Leave(member=JOINED.member, reason="SIGTERM", progress=None)]
    assert coordinator.notices == []


def test_what_no_coordinator_hears_is_left_as_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memberships, "_HEARD_SECONDS", 0.0)
    coordinator = Coordinator()
    coordinator.hears = False
    assert ended_with(coordinator) is ExitCode.INTERRUPTED
    assert coordinator.notices == coordinator.told != []


class LosesItsGroup(WaitsForShards):
    """A training in a step of which another process of the replica ends."""

    def train_until(self, ends: object) -> None:
        del ends
        self._coordinator.arrive()
        raise GroupLost("the other one is gone")


def loses_its_group(coordinator: Coordinator) -> ExitCode:
    return ended_with(coordinator, LosesItsGroup(Cancellation(), coordinator))


def test_whose_group_is_over_ends_as_it_was_told_or_to_be_started_again() -> None:
    end = End(reason="Epochs")
    told, untold = Coordinator(command(3, Drain()), command(7, end)), Coordinator()
    assert loses_its_group(told) is ExitCode.COMPLETE
    assert told.told == [end]
    assert loses_its_group(untold) is ExitCode.RESTART
    assert untold.told == [], "its incarnation is over: it has no word in it any more"


WRITTEN = ShardWritten(file="f", bytes=1, hash="h", version=1)


class HoldsTheState:
    """A training that has values once it has begun."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.now = self
        self._coordinator = coordinator
        self._has_begun = False

    def begin(self, meanwhile: Callable[[], None]) -> None:
        self._coordinator.arrive()
        meanwhile()
        self._has_begun = True

    def train_until(self, ends: Callable[[], bool]) -> None:
        assert not ends()
        self._coordinator.commands.put(command(2, End(reason="Epochs")))
        assert ends()

    def write_part(self, command: Checkpoint) -> Result:
        return (
            WRITTEN if self._has_begun else CommandFailed(message=f"no values for {command.folder}")
        )


def test_a_replica_that_holds_the_state_writes_it_once_it_has_values() -> None:
    coordinator = Coordinator(command(1, Checkpoint(number=3, folder="f")))

    assert ended_with(coordinator, HoldsTheState(coordinator)) is ExitCode.COMPLETE

    assert coordinator.answers[0] == WRITTEN
