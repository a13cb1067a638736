"""The coordinator's loop against a scripted listener: who may say what, and when it answers."""

import errno
import itertools
import json
import os
import threading
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

import pytest

from builders import scraping
from builders.batch_machines import RULES, BatchMachine
from builders.control_members import LAYOUT
from builders.jobs import a_job
from builders.machines import BASE, Machine
from disttrain.checkpoint import stores
from disttrain.checkpoint.manifest import JobIdentity
from disttrain.coordinator.errors import Superseded
from disttrain.coordinator.journal import journal
from disttrain.coordinator.journal.journal import Journal
from disttrain.coordinator.phases import FailureReason, Phase
from disttrain.coordinator.process.checkpoints import Checkpoints
from disttrain.coordinator.process.reporting import Reporting, RunFiles
from disttrain.coordinator.process.served_metrics import ServedMetrics
from disttrain.coordinator.process.service import END_GRACE_SECONDS, Parts, Service
from disttrain.coordinator.protocol import commands, leave_notices, messages, payloads
from disttrain.coordinator.protocol.fields import NO_PROGRESS, MemberId, Position, Progress
from disttrain.coordinator.protocol.leave_notices import LeaveNoticeWatch
from disttrain.coordinator.protocol.messages import HeartbeatReply
from disttrain.coordinator.protocol.notices import Notice
from disttrain.job.identity import Identity
from disttrain.job.strategies.sandblaster import BackupTasks
from disttrain.launch.config import Supervisor
from disttrain.transport.errors import Refusal
from disttrain.transport.header import EMPTY, Header, Role, Verb
from disttrain.transport.interface import Payload, Request

FAIL = messages.Fail(reason=FailureReason.TASK_ERROR, message="a bad task")
STOP = messages.Stop(reason="Ctrl-C", at_once=True)


def a_join(instance: str) -> messages.Join:
    return messages.Join(
        role=Role.SHARD, index=0, instance=instance, pid=1, data_address="ipc:///x"
    )


class ScriptedListener:
    """Hands out what was said; keeps what was answered, by the number of the request."""

    address = "ipc:///nowhere"

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        self.arriving: deque[Request] = deque()
        self.answers: dict[int, messages.Reply] = {}
        self.unasked: list[messages.Reply] = []
        self.incarnations: dict[int, set[int]] = {}
        """Of the coordinator, as what it has sent says."""
        self.when_idle: Callable[[], object] = lambda: None
        self._said = 0
        self.idle = 0

    def say(
        self,
        role: Role,
        said: messages.Request,
        coordinator: int = 0,
        identity: Identity | None = None,
    ) -> int:
        """`coordinator`: its newest incarnation that the sender has heard."""
        self._said += 1
        header = EMPTY._replace(
            verb=Verb.CONTROL_REQUEST,
            role=role,
            sequence=self._said,
            receiver_incarnation=coordinator,
        )
        payload = memoryview(payloads.encode_request(said))
        self.arriving.append(Request(b"peer", header, payload, identity))
        return self._said

    def receive(self, timeout: float) -> Request | None:
        if timeout and not self.arriving:
            self.idle += 1
            assert self.idle < 1000, "the service waits for something that does not come"
            self.when_idle()
        return self.arriving.popleft() if self.arriving else None

    def reply(self, to: Request | bytes, header: Header, payload: Payload = b"") -> bool:
        self.incarnations.setdefault(header.verb, set()).add(header.incarnation)
        if isinstance(to, Request):
            assert isinstance(payload, bytes)
            self.answers[header.sequence] = payloads.parse_reply(payload)
        elif header.verb == Verb.CONTROL_REPLY:
            assert isinstance(payload, bytes)
            self.unasked.append(payloads.parse_reply(payload))
        return True

    def forget(self, peer: bytes) -> None:
        del peer

    def close(self) -> None:
        pass


class Served:
    """A service whose clock goes on by itself."""

    def __init__(
        self,
        folder: Path,
        supervisor: Supervisor = Supervisor.LAUNCHER,
        members: Machine | None = None,
    ) -> None:
        self.now = 100.0
        self.folder = folder
        self.leave_notices = leave_notices.in_folder(folder)
        self.members = members or Machine()
        self.machine = self.members.coordinator
        self.journal = Journal(folder / "journal")
        self.journal.begin(self.machine.state)
        self.listener = ScriptedListener()
        self.metrics = ServedMetrics("127.0.0.1:0")
        self.reporting = Reporting(
            self.machine, RunFiles(folder), self.metrics, losses_are_exact=True
        )
        spec = a_job("spec.checkpoint.keepLast=1").spec
        parts = Parts(
            machine=self.machine,
            journal=self.journal,
            checkpoints=Checkpoints(stores.in_folder(folder), JobIdentity(uid="u", name="n"), spec),
            reporting=self.reporting,
            leave_notices=LeaveNoticeWatch(self.leave_notices),
            supervisor=supervisor,
            clock=self._clock,
        )
        self.parts = parts
        self.service = Service(parts, self.listener)

    def _clock(self) -> float:
        self.now += 0.01
        return self.now


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


def test_each_iteration_of_the_loop_shows_over_http(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    iterations: list[float] = []
    monkeypatch.setattr(served.metrics.health, "iterated", lambda: iterations.append(served.now))
    served.listener.say(Role.LAUNCHER, STOP)

    served.service.run()

    assert iterations


def test_a_loop_that_hangs_shows_over_http(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.chain([0.0, 60.0], itertools.repeat(60.1))
    monkeypatch.setattr(served.metrics.health, "_clock", lambda: next(seconds))
    served.reporting.ready(patience_seconds=60.0)

    assert scraping.asked(served.metrics.address, "/healthz").status == 200
    assert scraping.asked(served.metrics.address, "/healthz").status == 503


@pytest.mark.parametrize("role", [Role.REPLICA, Role.SHARD])
def test_only_the_launcher_may_fail_the_job(served: Served, role: Role) -> None:
    asked = served.listener.say(role, FAIL)
    served.listener.say(Role.LAUNCHER, STOP)

    served.service.run()

    refusal = served.listener.answers[asked]
    assert isinstance(refusal, messages.Refused)
    assert refusal.reason is messages.RefusalReason.NOT_ALLOWED
    assert served.machine.state.phase is Phase.STOPPED


def test_who_speaks_in_the_name_of_another_is_refused_counted_and_logged_with_both(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    own, other = (Identity("uid", "shard", index) for index in (0, 1))
    heard = served.listener.say(Role.SHARD, a_join("s"), identity=own)
    forged = [served.listener.say(Role.SHARD, a_join("x"), identity=other) for _ in range(3)]
    served.listener.say(Role.LAUNCHER, STOP, identity=Identity("uid", "launcher"))
    served.service.run()

    assert isinstance(served.listener.answers[heard], messages.Joined)
    for number in forged:
        refusal = served.listener.answers[number]
        assert isinstance(refusal, messages.Refused)
        assert refusal.reason is messages.RefusalReason.NOT_ALLOWED
        assert "the certificate of shard-1 does not speak for shard-0" in refusal.message
    assert served.machine.state.shards[0].instance == "s"
    assert served.listener.refused[Refusal.IMPOSTOR] == 3
    told = [one for one in caplog.records if one.message == "request refused"]
    assert len(told) == 1, "each sentence once"


def test_a_flood_of_requests_that_cannot_be_read_is_counted_and_fills_no_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    header = EMPTY._replace(verb=Verb.CONTROL_REQUEST, role=Role.REPLICA)
    flood = [Request(b"peer", header, memoryview(b"{")) for _ in range(300)]
    served.listener.arriving.extend(flood)
    served.listener.say(Role.LAUNCHER, STOP)
    served.service.run()
    assert served.listener.refused["request"] == len(flood)
    lines = [one for one in caplog.records if one.message == "request refused"]
    assert 1 <= len(lines) < len(flood) // 10


def test_answers_commands_and_news_say_which_incarnation_of_the_coordinator_they_are_of(
    served: Served,
) -> None:
    served.machine.state.incarnation = 3
    replica = messages.Join(
        role=Role.REPLICA,
        index=0,
        instance="r",
        pid=2,
        layout=LAYOUT,
        train_samples=32,
        test_samples=10,
    )
    served.listener.say(Role.SHARD, a_join("s"))
    served.listener.say(Role.REPLICA, replica)

    def stop_when_news_were_told() -> None:
        if served.machine.state.phase is Phase.STOPPED:
            # Nobody answers the commands.
            served.now += 1000
        elif served.listener.unasked:
            served.listener.say(Role.LAUNCHER, STOP)

    served.listener.when_idle = stop_when_news_were_told
    served.service.run()

    assert served.listener.incarnations == {Verb.CONTROL_REPLY: {3}, Verb.CONTROL_COMMAND: {3}}


def test_a_coordinator_of_whose_next_incarnation_a_member_has_heard_ends(served: Served) -> None:
    incarnations = served.machine.state.incarnation
    known = served.listener.say(Role.SHARD, a_join("a"), coordinator=incarnations)
    asked = served.listener.say(Role.SHARD, a_join("b"), coordinator=incarnations + 1)

    with pytest.raises(Superseded, match="a member has heard of coordinator incarnation"):
        served.service.run()

    assert not {known, asked} & served.listener.answers.keys()


SHARD_0, SHARD_1 = (Identity("uid", "shard", index) for index in (0, 1))
OF_SHARD_0 = MemberId(role=Role.SHARD, index=0, incarnation=1)


@pytest.mark.parametrize(
    ("role", "identity", "said"),
    [
        (Role.SHARD, SHARD_1, a_join("x")),
        (Role.SHARD, SHARD_1, messages.Heartbeat(member=OF_SHARD_0)),
        (Role.SHARD, SHARD_1, messages.Leave(member=OF_SHARD_0, reason="it is told so")),
        (Role.SHARD, SHARD_0, FAIL),
        (Role.SHARD, SHARD_0, STOP),
        (Role.REPLICA, Identity("uid", "replica", 0), messages.AskPlacement()),
        (Role.REPLICA, Identity("uid", "replica", 0), messages.Heartbeat(member=OF_SHARD_0)),
        (Role.LAUNCHER, Identity("uid", "launcher"), a_join("x")),
    ],
    ids=[
        *("join", "heartbeat", "leave", "fail", "stop", "ask_placement"),
        *("heartbeat of another role", "join of another role"),
    ],
)
def test_who_may_not_speak_ends_no_coordinator_by_a_newer_incarnation(
    served: Served, role: Role, identity: Identity, said: messages.Request
) -> None:
    joined = served.listener.say(Role.SHARD, a_join("a"), identity=SHARD_0)
    forged = served.listener.say(role, said, coordinator=1000, identity=identity)
    served.listener.say(Role.LAUNCHER, STOP, identity=Identity("uid", "launcher"))

    served.service.run()

    reply, refusal = (served.listener.answers[each] for each in (joined, forged))
    assert isinstance(reply, messages.Joined)
    assert reply.member == OF_SHARD_0
    assert isinstance(refusal, messages.Refused)
    assert refusal.reason is messages.RefusalReason.NOT_ALLOWED


def test_what_cannot_be_read_ends_no_coordinator_either(served: Served) -> None:
    header = EMPTY._replace(verb=Verb.CONTROL_REQUEST, role=Role.REPLICA, receiver_incarnation=1000)
    served.listener.arriving.append(Request(b"peer", header, memoryview(b"{")))
    served.listener.say(Role.LAUNCHER, STOP)
    served.service.run()
    assert served.listener.refused["request"] == 1


def test_a_coordinator_whose_job_another_one_has_claimed_commits_nothing(served: Served) -> None:
    served.journal.claim("old")
    served.members.running()
    Journal(served.folder / "journal").claim("new")
    served.parts.leaving = True

    with pytest.raises(Superseded, match="a newer coordinator"):
        served.service.run()

    assert not list(served.folder.glob("*staging*"))


def test_a_coordinator_whose_job_another_one_has_claimed_ends_though_it_decides_nothing(
    served: Served,
) -> None:
    served.journal.claim("old")
    Journal(served.folder / "journal").claim("new")

    def a_second() -> None:
        served.now += 1.0

    served.listener.when_idle = a_second

    with pytest.raises(Superseded, match="a newer coordinator"):
        served.service.run()


def test_the_launcher_fails_the_job(served: Served) -> None:
    asked = served.listener.say(Role.LAUNCHER, FAIL)

    served.service.run()

    assert served.listener.answers[asked] == messages.Acknowledged()
    assert served.machine.state.phase is Phase.FAILED


@pytest.mark.parametrize("role", [Role.REPLICA, Role.SHARD])
def test_without_a_launcher_a_member_may_fail_the_job(tmp_path: Path, role: Role) -> None:
    served = Served(tmp_path, Supervisor.NODE)
    asked = served.listener.say(role, FAIL)

    served.service.run()

    assert served.listener.answers[asked] == messages.Acknowledged()
    assert served.machine.state.phase is Phase.FAILED


def test_a_coordinator_that_is_told_to_end_saves_and_leaves_the_job_as_it_is(
    served: Served,
) -> None:
    shard, *_ = served.members.running()
    served.journal.begin(served.machine.state)
    before = served.machine.state.next_checkpoint
    served.parts.leaving = True

    def answer() -> None:
        for command in served.machine.commands_for(shard):
            failed = commands.CommandFailed(message="no disk")
            done = messages.CommandDone(member=shard, order=command.id, result=failed)
            served.listener.say(Role.SHARD, done)

    served.listener.when_idle = answer
    served.service.run()

    replayed = journal.replay(served.folder / "journal")
    assert replayed is not None
    for state in (served.machine.state, replayed.state):
        assert state.phase is Phase.RUNNING
        assert state.next_checkpoint == before + 1
        assert state.checkpoint is None


def test_a_shard_hears_at_once_of_a_replica_that_has_joined(served: Served) -> None:
    served.listener.say(Role.SHARD, a_join("s"))

    def join_a_replica() -> None:
        member = served.members.member(Role.REPLICA, 1, "r")
        served.listener.when_idle = lambda: _end_when_told(served, {1: member.incarnation})

    served.listener.when_idle = join_a_replica
    served.service.run()


def _end_when_told(served: Served, replicas: dict[int, int]) -> None:
    told = [reply for reply in served.listener.unasked if isinstance(reply, HeartbeatReply)]
    if any(reply.replicas == replicas for reply in told):
        served.listener.say(Role.LAUNCHER, STOP)


def test_a_place_of_leave_notices_that_does_not_answer_holds_up_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, asked, is_held = threading.Event(), threading.Event(), []

    def read() -> dict[str, Notice]:
        asked.set()
        is_held.append(not answers.wait(10))
        return {}

    def stop_when_asked() -> None:
        # The place is asked after the first look at what has arrived.
        if served.listener.idle > 1:
            assert asked.wait(60)
            served.listener.say(Role.LAUNCHER, STOP)

    monkeypatch.setattr(served.leave_notices, "read", read)
    served.listener.when_idle = stop_when_asked

    served.service.run()

    assert is_held == [], "the service has ended before the place answered"
    answers.set()


def test_a_leave_notice_that_nobody_heard_is_taken_as_if_it_had_been_said(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, replica, _ = served.members.running()
    lease, *_ = served.members.work(replica).leases
    progress = Progress(position=Position(lease=lease.id, offset=4), samples=4)
    leave = messages.Leave(member=replica, reason="SIGTERM", progress=progress)
    served.leave_notices.write(leave)
    looked, read = threading.Event(), served.leave_notices.read

    def read_and_tell() -> dict[str, Notice]:
        try:
            return read()
        finally:
            looked.set()

    def stop_when_heard() -> None:
        assert served.listener.idle == 1 or looked.wait(60)
        if not served.machine.state.replicas[replica.index].live:
            served.listener.say(Role.LAUNCHER, STOP)

    monkeypatch.setattr(served.leave_notices, "read", read_and_tell)
    served.listener.when_idle = stop_when_heard

    served.service.run()

    assert not served.leave_notices.read()
    assert not served.machine.state.replicas[replica.index].live
    assert served.machine.state.samples == 4


def ask_for_work(served: Served, replica: MemberId) -> int:
    request = messages.RequestWork(
        member=replica, held=0, last_lease=0, progress=NO_PROGRESS, attempts=()
    )
    return served.listener.say(Role.REPLICA, request)


def a_batch(folder: Path) -> tuple[Served, MemberId, MemberId]:
    """One replica has both groups; for the other there are none."""
    rules = RULES.model_copy(update={"backup_tasks": BackupTasks(enabled=False)})
    members = BatchMachine(rules=rules)
    _, busy, idle = members.running()
    (first,) = members.ask(busy)
    members.ask(busy, first.attempt)
    return Served(folder, members=members), busy, idle


def test_who_waits_for_work_is_answered_when_there_is_some(tmp_path: Path) -> None:
    served, busy, idle = a_batch(tmp_path)
    asked = ask_for_work(served, idle)
    steps = iter(
        [
            lambda: served.listener.say(
                Role.REPLICA, messages.Leave(member=busy, reason="SIGTERM")
            ),
            lambda: served.listener.say(Role.LAUNCHER, STOP),
        ]
    )
    early: list[bool] = []

    def look() -> None:
        early.append(asked in served.listener.answers)
        next(steps, lambda: None)()

    served.listener.when_idle = look
    served.service.run()

    reply = served.listener.answers[asked]
    assert early[:2] == [False, True]
    assert isinstance(reply, messages.Work)
    assert len(reply.groups) == 1


def test_who_waits_for_work_in_vain_asks_anew_after_a_moment(tmp_path: Path) -> None:
    """Its request is not for ever: what it has dropped meanwhile only the next one says."""
    served, _, idle = a_batch(tmp_path)
    asked, began = ask_for_work(served, idle), served.now

    def look() -> None:
        served.now += 0.05
        if asked in served.listener.answers:
            served.listener.say(Role.LAUNCHER, STOP)

    served.listener.when_idle = look
    served.service.run()

    reply = served.listener.answers[asked]
    assert isinstance(reply, messages.Work)
    assert (reply.groups, reply.wait) == ((), True)
    assert served.now - began > 0.5


def test_who_asks_anew_for_work_does_not_wait_for_an_answer_to_what_it_asked_before(
    tmp_path: Path,
) -> None:
    served, _, idle = a_batch(tmp_path)
    asked = [ask_for_work(served, idle) for _ in range(2)]
    early: list[list[bool]] = []

    def look() -> None:
        early.append([one in served.listener.answers for one in asked])
        served.listener.say(Role.LAUNCHER, STOP)

    served.listener.when_idle = look
    served.service.run()

    assert early[0] == [True, False]
    older, newer = (served.listener.answers[one] for one in asked)
    assert isinstance(older, messages.Work)
    assert isinstance(newer, messages.Work)
    assert (older.groups, older.wait) == ((), True)
    assert not newer.wait


def test_a_request_that_is_sent_again_is_kept_as_the_first_was(tmp_path: Path) -> None:
    served, _, idle = a_batch(tmp_path)
    asked = ask_for_work(served, idle)
    served.listener.arriving.append(served.listener.arriving[0])
    early: list[bool] = []

    def look() -> None:
        early.append(asked in served.listener.answers)
        served.listener.say(Role.LAUNCHER, STOP)

    served.listener.when_idle = look
    served.service.run()

    assert early[0] is False


def test_the_end_of_the_job_is_told_to_who_waits_for_work(tmp_path: Path) -> None:
    served, _, idle = a_batch(tmp_path)
    asked = ask_for_work(served, idle)
    served.listener.when_idle = lambda: served.listener.say(Role.LAUNCHER, STOP)

    served.service.run()

    reply = served.listener.answers[asked]
    assert isinstance(reply, messages.Work)
    assert not reply.wait


class FullDisk:
    """Refuses the journal's lines until it is emptied, which happens after some attempts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, attempts: int) -> None:
        self._left = attempts
        self._write = os.pwrite
        monkeypatch.setattr(os, "pwrite", self._refuse)

    @property
    def is_full(self) -> bool:
        return self._left > 0

    def _refuse(self, descriptor: int, content: bytes, offset: int) -> int:
        if not self.is_full:
            return self._write(descriptor, content, offset)
        self._left -= 1
        raise OSError(errno.ENOSPC, "No space left on device")


def test_nothing_is_answered_or_ordered_before_it_is_in_the_journal(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = served.listener.say(Role.SHARD, a_join("s"))
    disk = FullDisk(monkeypatch, 20)
    real = served.listener.reply
    told_early: list[bool] = []

    def reply(to: Request | bytes, header: Header, payload: Payload = b"") -> bool:
        told_early.append(disk.is_full)
        if header.sequence == joined:
            served.listener.say(Role.LAUNCHER, STOP)
        return real(to, header, payload)

    monkeypatch.setattr(served.listener, "reply", reply)
    served.service.run()

    assert isinstance(served.listener.answers[joined], messages.Joined)
    assert not any(told_early)


def test_a_full_disk_lets_nothing_be_decided_and_nobody_be_declared_dead(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for incarnation in range(9):
        served.listener.say(Role.SHARD, a_join(f"s{incarnation}"))
    disk = FullDisk(monkeypatch, 200)

    def wait() -> None:
        served.now += 0.5
        if not disk.is_full:
            served.listener.say(Role.LAUNCHER, STOP)

    served.listener.when_idle = wait
    served.service.run()
    served.journal.close()

    replayed = journal.replay(tmp_path / "journal")
    assert replayed is not None
    assert replayed.state.phase is Phase.STOPPED
    shard = replayed.state.shards[0]
    assert (shard.instance, shard.reason) == ("s0", "")


def test_a_coordinator_that_was_stopped_declares_nobody_dead(served: Served) -> None:
    served.listener.say(Role.SHARD, a_join("s0"))
    stopped = iter((2 * BASE.member_timeout_seconds, 2.0))

    def be_stopped() -> None:
        seconds = next(stopped, 0.0)
        served.now += seconds
        if not seconds:
            served.listener.say(Role.LAUNCHER, STOP)

    served.listener.when_idle = be_stopped
    served.service.run()

    shard = served.machine.state.shards[0]
    assert served.machine.state.phase is Phase.STOPPED
    assert (shard.instance, shard.reason) == ("s0", "")


def test_a_full_disk_is_waited_for_though_somebody_waits_for_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, busy, idle = a_batch(tmp_path)
    ask_for_work(served, idle)
    served.listener.say(Role.REPLICA, messages.Leave(member=busy, reason="SIGTERM"))
    disk = FullDisk(monkeypatch, 20)
    waits_while_full: list[bool] = []

    def wait() -> None:
        waits_while_full.append(disk.is_full)
        served.now += 0.5
        if not disk.is_full:
            served.listener.say(Role.LAUNCHER, STOP)

    served.listener.when_idle = wait
    served.service.run()

    assert any(waits_while_full)


def test_while_the_disk_is_full_the_status_is_told_and_a_stop_ends_the_job(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.members.running()
    FullDisk(monkeypatch, 10**9)
    join = served.listener.say(Role.SHARD, a_join("s"))
    stop = served.listener.say(Role.LAUNCHER, messages.Stop(reason="Ctrl-C"))
    status = served.listener.say(Role.LAUNCHER, messages.Status())
    asked = served.now
    warned: list[str | None] = []

    def look() -> None:
        file = served.folder / "status.json"
        if file.exists():
            warned.append(json.loads(file.read_bytes())["journalWarning"])

    served.listener.when_idle = look
    served.service.run()

    told = served.listener.answers
    assert isinstance(told[status], messages.StatusReply)
    assert "training halts until it has room" in str(warned)
    assert join not in told
    assert stop not in told
    assert served.machine.state.phase is Phase.STOPPED
    assert served.now - asked < 3 * END_GRACE_SECONDS


def test_a_stop_waits_for_a_disk_that_is_full_for_a_moment(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.members.running()
    disk = FullDisk(monkeypatch, 3)
    stop = served.listener.say(Role.LAUNCHER, messages.Stop(reason="Ctrl-C"))
    urgent: list[int] = []

    def look() -> None:
        if not disk.is_full and not urgent:
            assert served.machine.state.phase is Phase.DRAINING
            urgent.append(served.listener.say(Role.LAUNCHER, STOP))

    served.listener.when_idle = look
    served.service.run()

    assert urgent
    assert served.listener.answers[stop] == messages.Acknowledged()


def test_after_a_failed_sync_nothing_is_told_before_a_new_journal_holds_it(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    joined = served.listener.say(Role.SHARD, a_join("s"))
    real = os.fdatasync
    failures: list[int] = []

    def fail_once(descriptor: int) -> None:
        if failures:
            return real(descriptor)
        failures.append(descriptor)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail_once)
    before = _newest(tmp_path)

    def reply(to: Request | bytes, header: Header, payload: Payload = b"") -> bool:
        if header.sequence == joined:
            assert _newest(tmp_path) > before
            found = journal.replay(tmp_path / "journal")
            assert found is not None
            assert found.state.shards[0].instance == "s"
            served.listener.say(Role.LAUNCHER, STOP)
        return real_reply(to, header, payload)

    real_reply = served.listener.reply
    monkeypatch.setattr(served.listener, "reply", reply)
    served.service.run()

    assert failures
    assert isinstance(served.listener.answers[joined], messages.Joined)


def _newest(folder: Path) -> int:
    return max(int(file.stem) for file in (folder / "journal").glob("*.jsonl"))
