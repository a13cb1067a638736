"""A process group over sockets, formed by two threads that meet as two processes do."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch

from builders.grouped_members import a_member
from builders.machines import Machine
from disttrain.coordinator.protocol import messages
from disttrain.groups import gloo, steps
from disttrain.groups.errors import FormsAnew, GroupLost, NotConnected
from disttrain.groups.gloo import GlooGroup
from disttrain.groups.meeting import Meeting
from disttrain.launch.exit_code import ExitCode
from disttrain.replica.cancellation import Cancellation, Cancelled

PATIENCE_SECONDS = 60.0


class Pair:
    """Two members of one incarnation."""

    def __init__(self) -> None:
        self.machine = Machine(partitions=2)
        self._lock = threading.Lock()
        self.waits = threading.Event()
        """Whether somebody has asked for what another one gives."""
        self.cancellations = [Cancellation(), Cancellation()]
        self._pool = ThreadPoolExecutor(2)
        replies = [self._ask(a_member(partition, "ab"[partition])) for partition in (0, 1)]
        self.members = [one.member for one in replies if isinstance(one, messages.Joined)]

    def form(self, partition: int) -> "Future[GlooGroup]":
        return self._pool.submit(self._form, partition)

    def both(self) -> tuple[GlooGroup, GlooGroup]:
        first, second = self.form(0), self.form(1)
        return first.result(PATIENCE_SECONDS), second.result(PATIENCE_SECONDS)

    def beside(self, work: Callable[[], object]) -> "Future[object]":
        return self._pool.submit(work)

    def _form(self, partition: int) -> GlooGroup:
        cancellation, member = self.cancellations[partition], self.members[partition]
        meeting = Meeting(self._ask, member, cancellation.sleep)
        return gloo.form(meeting, partition, 2, "127.0.0.1", cancellation.check)

    def _ask(self, request: messages.Request) -> messages.Reply:
        with self._lock:
            reply = self.machine.request(request)
        if isinstance(request, messages.Meet) and request.wanted:
            self.waits.set()
        return reply

    def restart_coordinator(self) -> None:
        with self._lock:
            again = Machine(self.machine.state, partitions=2)
            again.coordinator.restarted(again.now, committed=None)
            self.machine = again


def test_members_sum_what_each_gives_and_wait_for_each_other() -> None:
    pair = Pair()
    first, second = pair.both()
    sums = pair.beside(lambda: first.sum((7, 2)))
    with pytest.raises(TimeoutError):
        sums.result(0.2)
    assert second.sum((0, 1)) == [7, 3] == sums.result(PATIENCE_SECONDS)


def test_the_first_one_announces_steps_and_the_end() -> None:
    pair = Pair()
    first, second = pair.both()
    seen: list[Sequence[int]] = []
    followed = pair.beside(lambda: steps.follow(second, seen.append))
    leader = steps.Leader(first)
    for number in range(3):
        leader.before_step(number, 7)
    leader.end(ExitCode.RESTART)
    assert followed.result(PATIENCE_SECONDS) == ExitCode.RESTART
    assert seen == [[number, 7, *[0] * (steps.ORDER_WORDS - 2)] for number in range(3)]


def test_the_first_one_hears_that_another_one_leaves() -> None:
    pair = Pair()
    first, second = pair.both()
    seen: list[Sequence[int]] = []
    followed = pair.beside(lambda: steps.follow(second, seen.append, lambda: len(seen) >= 1))
    leader = steps.Leader(first)
    heard = []
    for _ in range(2):
        leader.before_step()
        heard.append(leader.others_leave)
    leader.end(ExitCode.INTERRUPTED)
    assert heard == [False, True]
    assert followed.result(PATIENCE_SECONDS) == ExitCode.INTERRUPTED


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_become_the_sum_of_all_or_the_first_ones(dtype: torch.dtype) -> None:
    pair = Pair()
    first, second = pair.both()
    tensors = [torch.arange(6, dtype=dtype).view(2, 3).T * factor for factor in (1, 10)]
    wanted = tensors[0] + tensors[1]
    done = pair.beside(lambda: first.all_reduce(tensors[0]))
    second.all_reduce(tensors[1])
    done.result(PATIENCE_SECONDS)
    assert all(torch.equal(each, wanted) for each in tensors)

    flags = [torch.tensor([True, False]), torch.tensor([False, False])]
    done = pair.beside(lambda: first.broadcast(flags[0]))
    second.broadcast(flags[1])
    done.result(PATIENCE_SECONDS)
    assert all(each.tolist() == [True, False] for each in flags)


def test_who_waits_for_a_member_ends_when_it_is_told_to() -> None:
    pair = Pair()
    first, _ = pair.both()
    waiting = pair.beside(lambda: first.sum((1, 0)))
    pair.cancellations[0].cancel()
    with pytest.raises(Cancelled):
        waiting.result(PATIENCE_SECONDS)
    with pytest.raises(GroupLost, match="not in step any more"):
        first.sum((1, 0))


def test_an_end_that_nobody_hears_is_waited_for_no_longer_than_a_moment() -> None:
    pair = Pair()
    first, _ = pair.both()
    with pytest.raises(GroupLost, match=r"not there within 0\.2 s"):
        first.sum((1, 0), 0.2)


def test_who_was_told_to_end_ends_so_although_the_others_do_not_hear_it() -> None:
    pair = Pair()
    first, _ = pair.both()
    pair.cancellations[0].cancel()
    steps.Leader(first).end(ExitCode.RESTART)


def test_who_waits_for_a_group_to_form_ends_when_it_is_told_to() -> None:
    pair = Pair()
    waiting = pair.form(0)
    pair.cancellations[0].cancel()
    with pytest.raises(Cancelled):
        waiting.result(PATIENCE_SECONDS)


class Elsewhere(Meeting):
    """A meeting with one member, at whose address there is somebody else."""

    def __init__(self) -> None:
        self._own = b""

    def put(self, key: str, value: bytes) -> None:
        del key
        self._own = value

    def get(self, key: str) -> bytes:
        if key.endswith("0"):
            return self._own
        highest = b"\xff\xff"
        return self._own[: _PORT.start] + highest + self._own[_PORT.stop :]


_PORT = slice(20, 22)
"""Where a member's own is in what gloo tells of it. Who has the lower one waits to be called."""


def test_members_that_are_kept_from_each_other_do_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gloo, "_CONNECT_SECONDS", 0.3)
    with pytest.raises(NotConnected, match=r"did not connect within 0\.3 s; let nothing, .* 127"):
        gloo.form(Elsewhere(), 0, 2, "127.0.0.1", lambda: None)


def refuse(*_: object) -> None:
    message = "connection refused"
    raise RuntimeError(message)


def test_members_that_refuse_each_other_have_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo, "_HEAR_SECONDS", 0.1)
    monkeypatch.setattr(gloo, "_connected", refuse)
    with pytest.raises(NotConnected, match="did not connect: connection refused; let nothing"):
        Pair().form(0).result(PATIENCE_SECONDS)


def test_who_hears_that_a_member_has_ended_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo, "_connected", refuse)
    pair = Pair()
    forming = pair.form(0)
    pair.cancellations[0].cancel()
    with pytest.raises(Cancelled):
        forming.result(PATIENCE_SECONDS)


def test_a_group_whose_incarnation_is_over_does_not_form() -> None:
    pair = Pair()
    pair.machine.request(a_member(1, "b2"))
    with pytest.raises(GroupLost, match="no member any more"):
        pair.form(0).result(PATIENCE_SECONDS)


def test_a_group_forms_anew_when_its_coordinator_was_started_again() -> None:
    pair = Pair()
    forming = pair.form(0)
    assert pair.waits.wait(PATIENCE_SECONDS)
    pair.restart_coordinator()
    with pytest.raises(FormsAnew):
        forming.result(PATIENCE_SECONDS)
