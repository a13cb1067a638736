"""A member's side of the control connection, against a scripted channel and clock."""

import errno
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from builders import placements
from builders.transports import PATIENCE, a_config, an_address, must_be_asked, opened
from disttrain.coordinator.errors import (
    CoordinatorSilent,
    JobOver,
    MemberFenced,
    MemberRemoved,
    MessageTooLong,
    NotJoined,
)
from disttrain.coordinator.protocol import commands, fields, messages, payloads
from disttrain.coordinator.protocol.client import CoordinatorClient
from disttrain.coordinator.protocol.control import ControlConnection
from disttrain.coordinator.protocol.fields import NO_PROGRESS, MemberId, Position, SenderPosition
from disttrain.coordinator.protocol.reports import ReplicaReport, ShardReport
from disttrain.errors import FinalError
from disttrain.transport.config import TransportKind
from disttrain.transport.errors import TransportTimeout
from disttrain.transport.header import EMPTY, Header, Role, Verb
from disttrain.transport.interface import Destination, Message, Payload, Slice, Transport

MEMBER = MemberId(role=Role.SHARD, index=0, incarnation=4)
JOIN = messages.Join(role=Role.SHARD, index=0, instance="a", pid=1)

Script = Callable[[messages.Request], messages.Reply | None]


class ScriptedChannel:
    """Answers each request at once as the script says; None loses it."""

    def __init__(self, script: Script) -> None:
        self.refused: Counter[str] = Counter()
        self.script = script
        self.sent: list[messages.Request] = []
        self.arriving: deque[Message] = deque()

    def send(
        self, header: Header, payload: Payload = b"", *, reply_into: Slice | None = None
    ) -> None:
        assert isinstance(payload, bytes)
        assert reply_into is None
        request = payloads.parse_request(payload)
        self.sent.append(request)
        reply = self.script(request)
        if reply is not None:
            answer = EMPTY._replace(verb=Verb.CONTROL_REPLY, sequence=header.sequence)
            self.arrive(answer, payloads.encode_reply(reply))

    def arrive(self, header: Header, payload: bytes) -> None:
        self.arriving.append(Message(header, memoryview(payload)))

    def receive(self, timeout: float, destination: Destination | None = None) -> Message | None:
        del timeout, destination
        return self.arriving.popleft() if self.arriving else None

    def wake(self) -> None:
        pass

    def close(self) -> None:
        pass


def _accepting(request: messages.Request) -> messages.Reply | None:
    if isinstance(request, messages.Join):
        return messages.Joined(member=MEMBER, seed=1)
    if isinstance(request, messages.Heartbeat):
        return messages.HeartbeatReply(live_replicas=3)
    return messages.Acknowledged()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        self.now += 0.01
        return self.now


def _joined(script: Script = _accepting) -> tuple[ControlConnection, ScriptedChannel, Clock]:
    channel, clock = ScriptedChannel(script), Clock()
    control = ControlConnection(channel, Role.SHARD, 1.0, clock)
    control.join(JOIN)
    return control, channel, clock


def _heartbeats(channel: ScriptedChannel) -> int:
    return sum(isinstance(request, messages.Heartbeat) for request in channel.sent)


def _left_unheard() -> tuple[int, ControlConnection, ScriptedChannel, Clock]:
    """A request whose answer is lost on the way: its number, and whom to ask again."""
    control, channel, clock = _joined()
    channel.script = lambda _: None
    number = control.request(messages.Leave(member=MEMBER, reason="SIGTERM"))
    return number, control, channel, clock


def test_joining_gives_the_identity_and_heartbeats_the_news() -> None:
    control, channel, clock = _joined()
    assert control.member == MEMBER
    control.poll(ShardReport)
    assert control.latest.live_replicas == 3
    control.poll(ShardReport)
    assert _heartbeats(channel) == 1
    clock.now += 1.0
    control.poll(ShardReport)
    assert _heartbeats(channel) == 2


def test_a_request_is_repeated_until_it_is_answered() -> None:
    number, control, channel, clock = _left_unheard()
    for _ in range(3):
        clock.now += 9.0
        control.poll(None)
    leaves = [request for request in channel.sent if isinstance(request, messages.Leave)]
    assert len(leaves) == 4
    channel.script = _accepting
    clock.now += 9.0
    assert control.poll(None).replies == {number: messages.Acknowledged()}
    clock.now += 9.0
    assert control.poll(None).replies == {}


def test_a_command_is_given_once_however_often_it_arrives() -> None:
    control, channel, _ = _joined()
    command = commands.NumberedCommand(id=7, order=commands.Drain())
    for _ in range(2):
        pushed = EMPTY._replace(verb=Verb.CONTROL_COMMAND, sequence=7)
        channel.arrive(pushed, payloads.encode_command(command))
    assert control.poll(None).commands == (command,)
    channel.script = lambda _: messages.HeartbeatReply(orders=(command,))
    assert control.poll(ShardReport).commands == ()


def test_a_command_that_comes_with_the_answer_to_the_join_is_not_lost() -> None:
    command = commands.NumberedCommand(id=7, order=commands.Configure())
    channel = ScriptedChannel(_accepting)
    control = ControlConnection(channel, Role.SHARD, 1.0, Clock())
    pushed = EMPTY._replace(verb=Verb.CONTROL_COMMAND, sequence=7)
    channel.arrive(pushed, payloads.encode_command(command))
    control.join(JOIN)
    assert control.poll(None).commands == (command,)
    assert control.poll(None).commands == ()


def test_an_older_incarnation_of_the_coordinator_is_not_listened_to() -> None:
    control, channel, _ = _joined()
    for incarnation, number in ((3, 7), (2, 8), (3, 9)):
        command = commands.NumberedCommand(id=number, order=commands.Drain())
        pushed = EMPTY._replace(verb=Verb.CONTROL_COMMAND, sequence=number, incarnation=incarnation)
        channel.arrive(pushed, payloads.encode_command(command))

    assert [command.id for command in control.poll(None).commands] == [7, 9]
    assert control.header(1).receiver_incarnation == 3


def test_a_report_goes_ahead_of_an_answer() -> None:
    control, channel, _ = _joined()
    control.poll(lambda: ShardReport(applied=1))
    command = commands.NumberedCommand(id=7, order=commands.End(reason="Epochs"))
    control.answer([(command, commands.Done())], lambda: ShardReport(applied=2))
    report, answer = channel.sent[-2:]
    assert report == messages.Heartbeat(member=MEMBER, shard=ShardReport(applied=2))
    assert answer == messages.CommandDone(member=MEMBER, order=7, result=commands.Done())


def _told(channel: ScriptedChannel, reply: messages.HeartbeatReply) -> None:
    unasked = EMPTY._replace(verb=Verb.CONTROL_REPLY, sequence=messages.UNASKED)
    channel.arrive(unasked, payloads.encode_reply(reply))


def _shard(incarnation: int) -> messages.ShardAddress:
    return messages.ShardAddress(index=0, incarnation=incarnation, address="ipc:///x")


def test_members_are_those_told_last_also_where_a_reply_leaves_them_out() -> None:
    control, channel, _ = _joined()
    _told(channel, messages.HeartbeatReply(epoch=3, shards=(_shard(2),), replicas={5: 2}))
    control.poll(None)
    channel.script = lambda _: messages.HeartbeatReply(epoch=3, live_replicas=7)
    control.poll(ShardReport)
    assert channel.sent[-1] == messages.Heartbeat(member=MEMBER, epoch=3, shard=ShardReport())
    assert (control.latest.shards, control.latest.replicas) == ((_shard(2),), {5: 2})
    assert control.latest.live_replicas == 7


def test_lost_leases_are_those_that_the_coordinator_still_names() -> None:
    control, channel, _ = _joined()
    channel.script = lambda _: messages.HeartbeatReply(lost_leases=(5, 6))
    control.report_now(ShardReport)
    channel.script = lambda _: messages.Work(lost_leases=(7,), wait=True)
    control.request(messages.RequestWork(member=MEMBER, held=0, last_lease=0, progress=NO_PROGRESS))
    control.poll(None)
    assert control.lost_leases == {5, 6, 7}

    channel.script = lambda _: messages.HeartbeatReply(lost_leases=(7,))
    control.report_now(ShardReport)
    control.poll(None)
    assert control.lost_leases == {7}


def test_who_holds_what_is_asked_before_the_join() -> None:
    told = placements.a_placement({placements.PARAMETERS: 64}, 2)
    channel = ScriptedChannel(lambda _: messages.Placed(placement=told))
    control = ControlConnection(channel, Role.SHARD, 1.0, Clock())
    assert control.ask_placement().placement == told
    channel.script = lambda _: messages.Placed()
    assert control.ask_placement().placement is None


def test_a_refusal_is_not_taken_for_a_job_in_which_nobody_holds_anything() -> None:
    refusal = messages.Refused(reason=messages.RefusalReason.MALFORMED, message="who are you")
    channel = ScriptedChannel(lambda _: refusal)
    control = ControlConnection(channel, Role.SHARD, 1.0, Clock())
    with pytest.raises(NotJoined, match="who are you"):
        control.ask_placement()


def test_members_of_an_older_epoch_came_late() -> None:
    control, channel, _ = _joined()
    _told(channel, messages.HeartbeatReply(epoch=3, shards=(_shard(2),), replicas={5: 2}))
    _told(channel, messages.HeartbeatReply(epoch=2, shards=(_shard(1),), replicas={5: 1}))
    control.poll(None)
    assert (control.latest.epoch, control.latest.replicas) == (3, {5: 2})
    assert control.latest.shards == (_shard(2),)


def test_the_coordinator_tells_the_intervals() -> None:
    intervals = messages.Intervals(heartbeat_seconds=12.0, repeat_seconds=2.0)
    joined = messages.Joined(member=MEMBER, seed=1, intervals=intervals)
    control, channel, clock = _joined(
        lambda request: joined if isinstance(request, messages.Join) else _accepting(request)
    )
    control.poll(ShardReport)
    for _ in range(5):
        clock.now += 2.0
        control.poll(ShardReport)
    assert _heartbeats(channel) == 1
    clock.now += 2.0
    control.poll(ShardReport)
    assert _heartbeats(channel) == 2


def test_counters_go_once_ahead_of_many_answers() -> None:
    control, channel, _ = _joined()
    control.poll(ShardReport)
    channel.sent.clear()
    done = [
        (commands.NumberedCommand(id=n, order=commands.Drain()), commands.Done())
        for n in range(1, 9)
    ]
    control.answer(done, lambda: ShardReport(applied=2))
    assert [request.kind for request in channel.sent] == ["heartbeat"] + 8 * ["order_done"]


def _too_long() -> messages.Join:
    """Of a shard that has seen some sixty thousand incarnations of replicas."""
    known = fields.RestoredSender(
        sender=SenderPosition(index=4095, incarnation=70_000, position=Position(), samples=1 << 50),
        acknowledged=1 << 40,
        lost=0,
    )
    restored = fields.Restored(initialised=True, checkpoint=1, version=1, senders=60_000 * (known,))
    return replace(JOIN, restored=restored)


def test_a_request_that_is_too_long_is_refused_at_once_and_not_repeated() -> None:
    channel = ScriptedChannel(_accepting)
    control = ControlConnection(channel, Role.SHARD, 1.0, Clock())
    with pytest.raises(MessageTooLong, match=r"of kind join has \d+ bytes, and at most 8388608"):
        control.join(_too_long())
    assert channel.sent == []
    assert isinstance(MessageTooLong("x"), FinalError)


def test_whoever_asks_by_a_request_that_is_too_long_is_told() -> None:
    client = CoordinatorClient(lambda: ScriptedChannel(_accepting), Role.SHARD)
    try:
        with pytest.raises(MessageTooLong):
            client.join(_too_long(), ShardReport, timeout=60)
        assert client.request(messages.Status()).result(5) == messages.Acknowledged()
    finally:
        client.close()


def test_garbage_is_passed_over() -> None:
    control, channel, _ = _joined()
    for payload in (b"", b"\xff", b"{}"):
        channel.arrive(EMPTY._replace(verb=Verb.CONTROL_COMMAND, sequence=1), payload)
    assert control.poll(None).commands == ()


def test_a_command_that_cannot_be_read_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    control, channel, _ = _joined()
    for payload in (b"{}", b"{}", b"[]"):
        channel.arrive(EMPTY._replace(verb=Verb.CONTROL_COMMAND, sequence=1), payload)
        control.poll(None)
    assert len(caplog.records) == 2


def test_after_a_heartbeat_reply_that_cannot_be_read_heartbeats_go_on() -> None:
    control, channel, clock = _joined(
        lambda request: None if isinstance(request, messages.Heartbeat) else _accepting(request)
    )
    control.poll(ShardReport)
    channel.arrive(EMPTY._replace(verb=Verb.CONTROL_REPLY, sequence=2), b"{}")
    control.poll(ShardReport)
    clock.now += 2.0
    control.poll(ShardReport)
    assert _heartbeats(channel) == 2


def test_a_request_whose_answer_cannot_be_read_is_repeated() -> None:
    number, control, channel, clock = _left_unheard()
    channel.arrive(EMPTY._replace(verb=Verb.CONTROL_REPLY, sequence=number), b"{}")
    assert control.poll(None).replies == {}
    channel.script = _accepting
    clock.now += 9.0
    assert control.poll(None).replies == {number: messages.Acknowledged()}


def test_a_fenced_incarnation_is_told_so() -> None:
    control, channel, _ = _joined()
    refusal = messages.Refused(reason=messages.RefusalReason.OLD_INCARNATION, message="dead")
    channel.script = lambda _: refusal
    with pytest.raises(MemberFenced, match="dead"):
        control.poll(ShardReport)


def test_a_coordinator_that_forgot_this_incarnation_is_joined_again() -> None:
    control, channel, _ = _joined()
    refusal = messages.Refused(reason=messages.RefusalReason.UNKNOWN_MEMBER, message="who?")
    channel.script = lambda request: (
        refusal if isinstance(request, messages.Heartbeat) else _accepting(request)
    )
    control.poll(ShardReport)
    assert isinstance(channel.sent[-1], messages.Join)


def test_whoever_waits_is_told_of_the_end_when_it_lies_among_the_commands() -> None:
    end = commands.NumberedCommand(id=7, order=commands.End(reason="Diverged"))
    channel = ScriptedChannel(
        lambda request: (
            messages.HeartbeatReply(orders=(end,))
            if isinstance(request, messages.Heartbeat)
            else _accepting(request)
        )
    )
    told = threading.Event()
    client = CoordinatorClient(lambda: channel, Role.SHARD, 0.01, on_end=told.set)
    try:
        client.join(JOIN, ShardReport, timeout=5)
        assert told.wait(5)
        assert client.commands.get_nowait() == end
    finally:
        client.close()


def test_a_refused_join_and_a_silent_coordinator_are_said() -> None:
    refusal = messages.Refused(reason=messages.RefusalReason.FULL, message="no place")
    with pytest.raises(NotJoined, match="no place"):
        _joined(lambda _: refusal)
    with pytest.raises(CoordinatorSilent, match="within 60 s"):
        _joined(lambda _: None)


def test_a_join_after_the_end_of_the_job_is_told_apart() -> None:
    over = messages.Refused(reason=messages.RefusalReason.ENDED, message="Complete")
    with pytest.raises(JobOver, match="Complete"):
        _joined(lambda _: over)
    client = CoordinatorClient(lambda: ScriptedChannel(lambda _: over), Role.REPLICA)
    try:
        with pytest.raises(JobOver, match="Complete"):
            client.join(JOIN, ReplicaReport, timeout=10)
    finally:
        client.close()


def test_of_what_is_due_one_send_at_most_blocks_while_the_coordinator_is_away() -> None:
    attempts = []

    def away(request: messages.Request) -> None:
        attempts.append(request)
        raise TransportTimeout("nobody takes it")

    control, channel, clock = _joined()
    channel.script = away
    control.request(messages.Status())
    control.request(messages.Status())
    attempts.clear()
    clock.now += 100.0
    control.poll(None)
    assert len(attempts) == 1


def test_what_could_not_be_sent_goes_with_the_next_poll() -> None:
    control, channel, _ = _joined()

    def full(_: messages.Request) -> None:
        raise TransportTimeout("the queue is full")

    channel.script = full
    number = control.request(messages.Leave(member=MEMBER, reason="SIGTERM"))
    channel.script = _accepting
    assert control.poll(None).replies == {number: messages.Acknowledged()}


def test_what_did_not_get_into_the_queue_goes_before_what_is_asked_later() -> None:
    control, channel, _ = _joined()
    is_full = [True, False, False]

    def full_at_first(request: messages.Request) -> messages.Reply | None:
        if is_full.pop(0):
            channel.sent.remove(request)
            raise TransportTimeout("the queue is full")
        return None

    channel.sent.clear()
    channel.script = full_at_first
    control.request(messages.Leave(member=MEMBER, reason="first"))
    control.request(messages.Leave(member=MEMBER, reason="second"))
    control.poll(None)
    reasons = [sent.reason for sent in channel.sent if isinstance(sent, messages.Leave)]
    assert reasons == ["first", "second"]


def test_a_repeat_is_due_so_long_after_it_was_sent_and_not_after_it_was_tried() -> None:
    _, control, channel, clock = _left_unheard()

    def slow(_: messages.Request) -> None:
        clock.now += 5.0

    channel.script = slow
    clock.now += 2.0
    control.poll(None)
    sent = len(channel.sent)
    control.poll(None)
    assert len(channel.sent) == sent


@pytest.mark.parametrize("kind", list(TransportKind))
def test_a_shard_goes_on_while_the_coordinator_is_away(kind: TransportKind, tmp_path: Path) -> None:
    """Real sockets without a peer, and a clock that makes a repeat due with every poll."""
    polls: queue.SimpleQueue[int] = queue.SimpleQueue()
    is_stuck = threading.Event()

    def poll_for_minutes(control: ControlConnection, clock: Clock) -> None:
        for second in range(200):
            clock.now += 1.0
            control.poll(ShardReport)
            polls.put(second)
            if is_stuck.is_set():
                break

    with opened(a_config(kind, send_timeout=2 * PATIENCE)) as transport:
        clock = Clock()
        control = _joined_to_one_that_leaves(transport, an_address(kind, tmp_path), clock)
        polling = threading.Thread(target=poll_for_minutes, args=(control, clock))
        polling.start()
        try:
            assert [polls.get(timeout=PATIENCE) for _ in range(200)] == list(range(200))
        finally:
            is_stuck.set()
            polling.join()


def _joined_to_one_that_leaves(
    transport: Transport, address: str, clock: Clock
) -> ControlConnection:
    listener = transport.listen(address)
    control = ControlConnection(transport.connect(listener.address), Role.SHARD, 1.0, clock)
    number = control.request(JOIN)
    welcome = EMPTY._replace(verb=Verb.CONTROL_REPLY, role=Role.COORDINATOR, sequence=number)
    request = must_be_asked(listener)
    listener.reply(request, welcome, payloads.encode_reply(messages.Joined(member=MEMBER, seed=1)))
    assert control.poll(None, wait=PATIENCE).replies
    listener.close()
    return control


def test_the_threaded_client_answers_futures_and_hands_out_commands() -> None:
    command = commands.NumberedCommand(id=7, order=commands.Drain())
    channel = ScriptedChannel(
        lambda request: (
            messages.HeartbeatReply(orders=(command,), lost_leases=(5,))
            if isinstance(request, messages.Heartbeat)
            else _accepting(request)
        )
    )
    client = CoordinatorClient(lambda: channel, Role.SHARD, 0.01)
    try:
        assert client.join(JOIN, ShardReport, timeout=5).member == MEMBER
        assert client.commands.get(timeout=5) == command
        client.answer(command, commands.Done())
        assert client.flush(5.0)
        assert any(isinstance(request, messages.CommandDone) for request in channel.sent)
        assert client.lost_leases == {5}
    finally:
        client.close()
    with pytest.raises(CoordinatorSilent):
        client.request(messages.Status()).result(5)


def test_who_waits_to_join_may_look_around_and_end_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disttrain.coordinator.protocol.client._MEANWHILE_SECONDS", 0.01)
    looks: list[None] = []

    def meanwhile() -> None:
        looks.append(None)
        if len(looks) == 3:
            raise ConnectionAbortedError

    client = CoordinatorClient(lambda: ScriptedChannel(lambda _: None), Role.REPLICA)
    try:
        with pytest.raises(ConnectionAbortedError):
            client.join(JOIN, ReplicaReport, timeout=60, meanwhile=meanwhile)
        with pytest.raises(TimeoutError):
            client.join(JOIN, ReplicaReport, timeout=0.05)
    finally:
        client.close()


def test_without_a_channel_whoever_waits_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def connect() -> ScriptedChannel:
        raise OSError(errno.EADDRNOTAVAIL, "no address")

    client = CoordinatorClient(connect, Role.SHARD, 0.01)
    with pytest.raises(CoordinatorSilent, match="no address"):
        client.request(messages.Status()).result(5)
    client.close()


class PatientChannel(ScriptedChannel):
    """Waits for ever, unless it is woken."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.woken = threading.Event()

    def receive(self, timeout: float, destination: Destination | None = None) -> Message | None:
        if not self.arriving and timeout:
            self.woken.wait()
            self.woken.clear()
        return super().receive(timeout, destination)

    def wake(self) -> None:
        self.woken.set()


def test_a_request_does_not_lie_while_the_thread_waits_for_something_else() -> None:
    client = CoordinatorClient(lambda: PatientChannel(_accepting), Role.SHARD, 3600.0)
    try:
        for _ in range(3):
            assert client.request(messages.Status()).result(5) == messages.Acknowledged()
    finally:
        client.close()


def test_counters_as_they_are_now_go_before_what_came_of_a_command() -> None:
    channel = ScriptedChannel(_accepting)
    client = CoordinatorClient(lambda: channel, Role.SHARD, heartbeat_seconds=3600.0)
    try:
        client.join(JOIN, ShardReport, timeout=5)
        client.answer(commands.NumberedCommand(id=1, order=commands.Drain()), commands.Done())
        assert client.flush(5.0)
    finally:
        client.close()
    kinds = [type(request) for request in channel.sent]
    assert kinds[kinds.index(messages.CommandDone) - 1] is messages.Heartbeat
    assert kinds.count(messages.Heartbeat) <= 2


def test_the_threaded_client_ends_when_this_incarnation_is_fenced() -> None:
    refusal = messages.Refused(reason=messages.RefusalReason.OLD_INCARNATION, message="dead")
    channel = ScriptedChannel(
        lambda request: refusal if isinstance(request, messages.Heartbeat) else _accepting(request)
    )
    told = threading.Event()
    client = CoordinatorClient(lambda: channel, Role.SHARD, 0.01, on_end=told.set)
    client.join(JOIN, ShardReport, timeout=5)
    assert told.wait(5)
    assert isinstance(client.commands.get_nowait().order, commands.End)
    with pytest.raises(MemberFenced):
        client.request(messages.Status()).result(5)
    client.close()


@pytest.mark.parametrize("reason", ["REMOVED", "OLD_INCARNATION"])
def test_who_is_removed_is_told_from_who_may_come_again(reason: str) -> None:
    refusal = messages.Refused(reason=messages.RefusalReason[reason], message="gone")
    channel = ScriptedChannel(
        lambda request: refusal if isinstance(request, messages.Heartbeat) else _accepting(request)
    )
    told = threading.Event()
    client = CoordinatorClient(lambda: channel, Role.SHARD, 0.01, on_end=told.set)
    client.require_wanted()
    client.join(JOIN, ShardReport, timeout=5)
    assert told.wait(5)

    is_final = reason == "REMOVED"
    with pytest.raises(MemberRemoved, match="gone") if is_final else nullcontext():
        client.require_wanted()
    client.close()


def test_who_comes_too_early_asks_again_when_it_was_told_to() -> None:
    seconds = 300.0
    channel, clock = ScriptedChannel(_accepting), Clock()
    asked: list[float] = []

    def script(request: messages.Request) -> messages.Reply | None:
        asked.append(clock.now)
        if clock.now < seconds:
            return messages.ComeAgain(seconds=seconds - clock.now, message="it failed")
        return _accepting(request)

    channel.script = script
    control = ControlConnection(channel, Role.SHARD, 1.0, clock)
    assert control.join(JOIN, timeout=2 * seconds).member == MEMBER
    assert len(asked) == 2
    assert asked[1] == pytest.approx(seconds, abs=1.0)
