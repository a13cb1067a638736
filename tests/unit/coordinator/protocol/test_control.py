"""A member's side of the control connection, against a scripted channel and clock."""

import errno
import threading
from collections import Counter, deque
from collections.abc import Callable

import pytest

from disttrain.coordinator.errors import CoordinatorSilent, JobOver, MemberFenced, NotJoined
from disttrain.coordinator.protocol import messages, orders, payloads
from disttrain.coordinator.protocol.client import CoordinatorClient
from disttrain.coordinator.protocol.control import ControlConnection
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.reports import ReplicaReport, ShardReport
from disttrain.transport.errors import TransportTimeout
from disttrain.transport.header import EMPTY, Header, Role, Verb
from disttrain.transport.interface import Destination, Message, Payload, Slice

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
        clock.now += 2.0
        control.poll(None)
    leaves = [request for request in channel.sent if isinstance(request, messages.Leave)]
    assert len(leaves) == 4
    channel.script = _accepting
    clock.now += 2.0
    assert control.poll(None).replies == {number: messages.Acknowledged()}
    clock.now += 9.0
    assert control.poll(None).replies == {}


def test_an_order_is_given_once_however_often_it_arrives() -> None:
    control, channel, _ = _joined()
    order = orders.NumberedOrder(id=7, order=orders.Drain())
    for _ in range(2):
        pushed = EMPTY._replace(verb=Verb.CONTROL_ORDER, sequence=7)
        channel.arrive(pushed, payloads.encode_order(order))
    assert control.poll(None).orders == (order,)
    channel.script = lambda _: messages.HeartbeatReply(orders=(order,))
    assert control.poll(ShardReport).orders == ()


def test_an_order_that_comes_with_the_answer_to_the_join_is_not_lost() -> None:
    order = orders.NumberedOrder(id=7, order=orders.Configure(elements={}, shards=1))
    channel = ScriptedChannel(_accepting)
    control = ControlConnection(channel, Role.SHARD, 1.0, Clock())
    pushed = EMPTY._replace(verb=Verb.CONTROL_ORDER, sequence=7)
    channel.arrive(pushed, payloads.encode_order(order))
    control.join(JOIN)
    assert control.poll(None).orders == (order,)
    assert control.poll(None).orders == ()


def test_a_report_goes_ahead_of_an_answer() -> None:
    control, channel, _ = _joined()
    control.poll(lambda: ShardReport(applied=1))
    order = orders.NumberedOrder(id=7, order=orders.End(reason="Epochs"))
    control.answer(order, orders.Done(), lambda: ShardReport(applied=2))
    report, answer = channel.sent[-2:]
    assert report == messages.Heartbeat(member=MEMBER, shard=ShardReport(applied=2))
    assert answer == messages.OrderDone(member=MEMBER, order=7, result=orders.Done())


def test_garbage_is_passed_over() -> None:
    control, channel, _ = _joined()
    for payload in (b"", b"\xff", b"{}"):
        channel.arrive(EMPTY._replace(verb=Verb.CONTROL_ORDER, sequence=1), payload)
    assert control.poll(None).orders == ()


def test_an_order_that_cannot_be_read_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    control, channel, _ = _joined()
    for payload in (b"{}", b"{}", b"[]"):
        channel.arrive(EMPTY._replace(verb=Verb.CONTROL_ORDER, sequence=1), payload)
        control.poll(None)
    assert len(caplog.records) == 2


def test_after_a_heartbeat_reply_that_cannot_be_read_heartbeats_go_on() -> None:
    control, channel, clock = _joined(
        lambda request: None if isinstance(request, messages.Heartbeat) else _accepting(request)
    )
    control.poll(ShardReport)
    channel.arrive(EMPTY._replace(verb=Verb.CONTROL_REPLY, sequence=2), b"{}")
    control.poll(ShardReport)
    clock.now += 1.0
    control.poll(ShardReport)
    assert _heartbeats(channel) == 2


def test_a_request_whose_answer_cannot_be_read_is_repeated() -> None:
    number, control, channel, clock = _left_unheard()
    channel.arrive(EMPTY._replace(verb=Verb.CONTROL_REPLY, sequence=number), b"{}")
    assert control.poll(None).replies == {}
    channel.script = _accepting
    clock.now += 2.0
    assert control.poll(None).replies == {number: messages.Acknowledged()}


def test_a_fenced_life_is_told_so() -> None:
    control, channel, _ = _joined()
    refusal = messages.Refused(reason=messages.RefusalReason.OLD_INCARNATION, message="dead")
    channel.script = lambda _: refusal
    with pytest.raises(MemberFenced, match="dead"):
        control.poll(ShardReport)


def test_a_coordinator_that_forgot_this_life_is_joined_again() -> None:
    control, channel, _ = _joined()
    refusal = messages.Refused(reason=messages.RefusalReason.UNKNOWN_MEMBER, message="who?")
    channel.script = lambda request: (
        refusal if isinstance(request, messages.Heartbeat) else _accepting(request)
    )
    control.poll(ShardReport)
    assert isinstance(channel.sent[-1], messages.Join)


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


def test_the_threaded_client_answers_futures_and_hands_out_orders() -> None:
    order = orders.NumberedOrder(id=7, order=orders.Drain())
    channel = ScriptedChannel(
        lambda request: (
            messages.HeartbeatReply(orders=(order,), lost_leases=(5,))
            if isinstance(request, messages.Heartbeat)
            else _accepting(request)
        )
    )
    client = CoordinatorClient(lambda: channel, Role.SHARD, 0.01)
    try:
        assert client.join(JOIN, ShardReport, timeout=5).member == MEMBER
        assert client.orders.get(timeout=5) == order
        client.answer(order, orders.Done())
        assert client.flush(5.0)
        assert any(isinstance(request, messages.OrderDone) for request in channel.sent)
        assert client.lost_leases == {5}
    finally:
        client.close()
    with pytest.raises(CoordinatorSilent):
        client.request(messages.Status()).result(5)


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


def test_counters_as_they_are_now_go_before_what_came_of_an_order() -> None:
    channel = ScriptedChannel(_accepting)
    client = CoordinatorClient(lambda: channel, Role.SHARD, heartbeat_seconds=3600.0)
    try:
        client.join(JOIN, ShardReport, timeout=5)
        client.answer(orders.NumberedOrder(id=1, order=orders.Drain()), orders.Done())
        assert client.flush(5.0)
    finally:
        client.close()
    kinds = [type(request) for request in channel.sent]
    assert kinds[kinds.index(messages.OrderDone) - 1] is messages.Heartbeat
    assert kinds.count(messages.Heartbeat) <= 2


def test_the_threaded_client_ends_when_this_life_is_fenced() -> None:
    refusal = messages.Refused(reason=messages.RefusalReason.OLD_INCARNATION, message="dead")
    channel = ScriptedChannel(
        lambda request: refusal if isinstance(request, messages.Heartbeat) else _accepting(request)
    )
    client = CoordinatorClient(lambda: channel, Role.SHARD, 0.01)
    client.join(JOIN, ShardReport, timeout=5)
    ended = client.orders.get(timeout=5)
    assert isinstance(ended.order, orders.End)
    with pytest.raises(MemberFenced):
        client.request(messages.Status()).result(5)
    client.close()
