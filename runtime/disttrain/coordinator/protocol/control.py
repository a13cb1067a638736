"""A member's connection to the coordinator without a thread: polled by a shard's loop."""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from disttrain.coordinator import errors
from disttrain.coordinator.protocol import messages, payloads
from disttrain.coordinator.protocol.commands import NumberedCommand, Result
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.reports import ReplicaReport, ShardReport
from disttrain.telemetry import logs
from disttrain.transport.errors import TransportError
from disttrain.transport.header import EMPTY, Header, Role, Verb
from disttrain.transport.interface import Channel

LOG = logs.get(__name__)

Clock = Callable[[], float]
Chance = Callable[[], float]
"""Numbers from 0 to 1."""
Report = Callable[[], ReplicaReport | ShardReport]

CHANCE = random.SystemRandom().random
"""Not of the process's generator: a task's data set may draw from that."""
_COMMANDS_REMEMBERED = 4096
FIRST_SECONDS = 1.0
"""Silence after which a request is sent again for the first time."""
_JITTER = 0.5
"""At most so much of a pause comes on top of it."""


class _Waiting(NamedTuple):
    due: float
    pause_seconds: float
    """From when it is sent until it is due once more."""
    payload: bytes


@dataclass(slots=True)
class Outstanding:
    """Requests without an answer yet, and when they are sent again. Pure.

    Sending one again is harmless: see `messages`. The pauses grow, and differ from member to
    member: a coordinator that is slow or comes back is not asked by everybody at once, again and
    again.
    """

    chance: Chance
    longest_seconds: float = 4.0
    """No pause is longer, but for the jitter. A coordinator that is started again is away for a
    second or two."""
    _next: int = 1
    _waiting: dict[int, _Waiting] = field(default_factory=dict)

    def add(self, payload: bytes) -> int:
        """Remembers a request, which is due at once; gives its number, from 1."""
        number = self._next
        self._next += 1
        self._waiting[number] = _Waiting(-math.inf, FIRST_SECONDS, payload)
        return number

    def sent(self, number: int, now: float) -> None:
        waiting = self._waiting[number]
        pause = min(waiting.pause_seconds, self.longest_seconds)
        due = now + pause * (1.0 + _JITTER * self.chance())
        self._waiting[number] = _Waiting(due, 2.0 * pause, waiting.payload)

    def put_off(self, number: int, due: float) -> None:
        """It is not answered yet, and asking before this time would be in vain."""
        self._waiting[number] = _Waiting(due, FIRST_SECONDS, self._waiting[number].payload)

    def waits(self, number: int) -> bool:
        return number in self._waiting

    def answered(self, number: int) -> None:
        del self._waiting[number]

    def due(self, now: float) -> list[tuple[int, bytes]]:
        """The requests to be sent now; they stay due until they are `sent`."""
        return [(number, one.payload) for number, one in self._waiting.items() if now >= one.due]


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    """What one poll brought."""

    commands: tuple[NumberedCommand, ...] = ()
    """Each command once."""
    replies: dict[int, messages.Reply] = field(default_factory=dict)
    """By the number that `request` gave; heartbeat replies are not among them."""


class ControlConnection:
    """One member's side. Belongs to the thread that owns the channel."""

    def __init__(
        self,
        channel: Channel,
        role: Role,
        heartbeat_seconds: float,
        clock: Clock = time.monotonic,
        chance: Chance = CHANCE,
    ) -> None:
        """`heartbeat_seconds`: until the coordinator tells another interval."""
        self.channel = channel
        """For `Transport.wait`."""
        self.latest = messages.HeartbeatReply()
        """Members, number of living replicas, phase: as they were told last. Lists are complete,
        though those that are known already are not told again."""
        self.lost_leases: frozenset[int] = frozenset()
        """Leases that were given to others, until the coordinator has heard where they ended here;
        for a replica."""
        self._role = role
        self._heartbeat_seconds = heartbeat_seconds
        self._clock = clock
        self._outstanding = Outstanding(chance)
        self._is_blocked = False
        """The queue was full; what is requested now waits behind what did not get in."""
        self._join: messages.Join | None = None
        self._member: MemberId | None = None
        self._next_heartbeat = 0.0
        self._heartbeats: set[int] = set()
        self._seen_commands: dict[int, None] = {}
        self._early: tuple[NumberedCommand, ...] = ()
        """Commands that came while `join` waited."""
        self._coordinator = 0
        """The newest incarnation of the coordinator that was heard; an older one is not listened
        to."""
        self._complaint = ""

    @property
    def member(self) -> MemberId:
        """Who this process is. Only after `join`."""
        if self._member is None:
            message = "this process has not joined; call join() first"
            raise errors.NotJoined(message)
        return self._member

    def join(self, join: messages.Join, timeout: float = 60.0) -> messages.Joined:
        """Introduces this process, and waits until the coordinator is there.

        Raises NotJoined when it is refused, CoordinatorSilent after `timeout` seconds.
        """
        reply = self._wait_for(self.request(join), timeout)
        if isinstance(reply, messages.Joined):
            return reply
        raise not_joined(join, reply)

    def ask_placement(self, timeout: float = 60.0) -> messages.Placed:
        """Who holds what, of which model. As `join`."""
        reply = self._wait_for(self.request(messages.AskPlacement()), timeout)
        if isinstance(reply, messages.Placed):
            return reply
        message = f"the coordinator told no placement: it answered {reply}"
        raise errors.NotJoined(message)

    def request(self, request: messages.Request) -> int:
        """Sends a request, again and again until it is answered.

        The reply comes out of `poll` with the number that this gives.
        """
        if isinstance(request, messages.Join):
            self._join = request
        payload = payloads.encode_request(request)
        number = self._outstanding.add(payload)
        if not self._is_blocked:
            self._is_blocked = not self._send(number, payload)
        return number

    def answer(self, done: Sequence[tuple[NumberedCommand, Result]], report: Report) -> list[int]:
        """Says what came of commands that were carried out; gives the numbers of the requests.

        One heartbeat goes ahead of them: what they lead to, perhaps the job's end, must not be
        judged by counters older than they are.
        """
        self.report_now(report)
        member = self.member
        return [
            self.request(messages.CommandDone(member=member, order=command.id, result=result))
            for command, result in done
        ]

    def poll(self, report: Report | None, wait: float = 0.0) -> Received:
        """Sends a heartbeat if it is time, repeats what is overdue, and takes in what has arrived.

        Without a report there is no heartbeat: the launcher and tools are no members. Waits up to
        `wait` seconds for the first message. Raises MemberFenced.
        """
        now = self._clock()
        if report is not None and now >= self._next_heartbeat and not self._heartbeats:
            self.report_now(report)
        return self._receive(wait)

    def _wait_for(self, number: int, timeout: float) -> messages.Reply:
        end = self._clock() + timeout
        while self._clock() < end:
            received = self.poll(None, wait=0.05)
            # Commands follow the answer to a join at once, and each is heard only once.
            self._early = received.commands
            if number in received.replies:
                return received.replies[number]
        message = f"no answer from the coordinator within {timeout:g} s; is it running?"
        raise errors.CoordinatorSilent(message)

    def report_now(self, report: Report) -> None:
        """Sends a heartbeat, out of turn if need be."""
        self._next_heartbeat = self._clock() + self._heartbeat_seconds
        self._heartbeats.add(self.request(self._heartbeat(report())))

    def close(self) -> None:
        self.channel.close()

    def _heartbeat(self, report: ReplicaReport | ShardReport) -> messages.Heartbeat:
        epoch = self.latest.epoch
        if isinstance(report, ReplicaReport):
            return messages.Heartbeat(member=self.member, epoch=epoch, replica=report)
        return messages.Heartbeat(member=self.member, epoch=epoch, shard=report)

    def _receive(self, wait: float) -> Received:
        due = self._outstanding.due(self._clock())
        # In the order in which they were made: a report is heard before what it explains.
        self._is_blocked = not all(self._send(number, payload) for number, payload in due)
        new_commands = list(self._early)
        self._early = ()
        replies: dict[int, messages.Reply] = {}
        while (message := self.channel.receive(wait)) is not None:
            wait = 0.0
            try:
                self._take(message.header, bytes(message.payload), new_commands, replies)
            except errors.MessageRefused as error:
                self._complain(str(error))
        return Received(commands=tuple(new_commands), replies=replies)

    def _complain(self, reason: str) -> None:
        if reason != self._complaint:
            LOG.warning("a message of the coordinator was refused", reason=reason)
        self._complaint = reason

    def _take(
        self,
        header: Header,
        payload: bytes,
        new_commands: list[NumberedCommand],
        replies: dict[int, messages.Reply],
    ) -> None:
        self._require_newest(header)
        if header.verb == Verb.CONTROL_COMMAND:
            new_commands.extend(self._unseen((payloads.parse_command(payload),)))
        if header.verb == Verb.CONTROL_REPLY and header.sequence == messages.UNASKED:
            self._hear(payloads.parse_reply(payload))
        if header.verb != Verb.CONTROL_REPLY or not self._outstanding.waits(header.sequence):
            return
        is_heartbeat = header.sequence in self._heartbeats
        # A reply that cannot be read is none: the request is repeated when it is due.
        reply = payloads.parse_reply(payload)
        if isinstance(reply, messages.ComeAgain):
            LOG.info("comes again later", seconds=round(reply.seconds, 1), reason=reply.message)
            self._outstanding.put_off(header.sequence, self._clock() + reply.seconds)
            return
        self._outstanding.answered(header.sequence)
        self._heartbeats.discard(header.sequence)
        self._check_admission(reply)
        if isinstance(reply, messages.Work):
            # It says nothing of those that are lost where the request was put off.
            self.lost_leases |= set(reply.lost_leases)
        if isinstance(reply, messages.HeartbeatReply):
            # All of them: replies come in the order in which they were made.
            self.lost_leases = frozenset(reply.lost_leases)
            new_commands.extend(self._unseen(reply.orders))
        self._hear(reply)
        if not is_heartbeat:
            replies[header.sequence] = reply

    def _require_newest(self, header: Header) -> None:
        """Raises MessageRefused for what an older incarnation of the coordinator says."""
        if 0 < header.incarnation < self._coordinator:
            message = (
                f"incarnation {header.incarnation} of the coordinator is over: "
                f"incarnation {self._coordinator} was heard"
            )
            raise errors.MessageRefused(message)
        self._coordinator = max(self._coordinator, header.incarnation)

    def _hear(self, reply: messages.Reply) -> None:
        """What a reply says of other members, and how often to speak."""
        if isinstance(reply, messages.Joined):
            self._member = reply.member
            self.latest = messages.HeartbeatReply(
                epoch=reply.epoch,
                shards=reply.shards,
                replicas=reply.replicas,
                instances=reply.instances,
                live_replicas=reply.live_replicas,
                intervals=reply.intervals,
            )
        elif isinstance(reply, messages.HeartbeatReply):
            self.latest = _joined_with(self.latest, reply)
        if self.latest.intervals is not None:
            self._heartbeat_seconds = self.latest.intervals.heartbeat_seconds
            self._outstanding.longest_seconds = self.latest.intervals.repeat_seconds

    def _check_admission(self, reply: messages.Reply) -> None:
        if not isinstance(reply, messages.Refused):
            return
        if reply.reason is messages.RefusalReason.OLD_INCARNATION:
            raise errors.MemberFenced(reply.message)
        if reply.reason is messages.RefusalReason.REMOVED:
            raise errors.MemberRemoved(reply.message)
        if reply.reason is messages.RefusalReason.UNKNOWN_MEMBER and self._join is not None:
            self.request(self._join)

    def _unseen(self, commands: tuple[NumberedCommand, ...]) -> list[NumberedCommand]:
        unseen = [command for command in commands if command.id not in self._seen_commands]
        self._seen_commands.update(dict.fromkeys(command.id for command in unseen))
        while len(self._seen_commands) > _COMMANDS_REMEMBERED:
            self._seen_commands.pop(next(iter(self._seen_commands)))
        return unseen

    def header(self, number: int) -> Header:
        """The header of this member's request `number`."""
        member = self._member
        return EMPTY._replace(
            verb=Verb.CONTROL_REQUEST,
            role=self._role,
            sender=member.index if member else 0,
            incarnation=member.incarnation if member else 0,
            receiver_incarnation=self._coordinator,
            sequence=number,
        )

    def _send(self, number: int, payload: bytes) -> bool:
        try:
            self.channel.send(self.header(number)._replace(count=len(payload)), payload)
        except TransportError:
            # The coordinator is away and the queue is full: the request stays due.
            return False
        self._outstanding.sent(number, self._clock())
        return True


def _joined_with(
    known: messages.HeartbeatReply, news: messages.HeartbeatReply
) -> messages.HeartbeatReply:
    """The news, with the lists that they leave out; those of an older epoch came late."""
    is_late = news.epoch < known.epoch
    return replace(
        news,
        epoch=max(news.epoch, known.epoch),
        shards=known.shards if is_late or news.shards is None else news.shards,
        replicas=known.replicas if is_late or news.replicas is None else news.replicas,
        instances=known.instances if is_late or news.replicas is None else news.instances,
        intervals=news.intervals or known.intervals,
    )


def not_joined(join: messages.Join, reply: messages.Reply) -> errors.NotJoined:
    why = reply.message if isinstance(reply, messages.Refused) else f"it answered {reply.kind}"
    which = join.role.name.lower() + ("" if join.index is None else f"-{join.index}")
    message = f"the coordinator refused {which}: {why}"
    over = isinstance(reply, messages.Refused) and reply.reason is messages.RefusalReason.ENDED
    return errors.JobOver(message) if over else errors.NotJoined(message)
