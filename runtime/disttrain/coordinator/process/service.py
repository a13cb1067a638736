"""The coordinator's loop: requests in, journal, effects, replies and commands out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from disttrain.checkpoint.errors import CheckpointError
from disttrain.coordinator.decisions import speaking
from disttrain.coordinator.decisions.machine import Coordinator
from disttrain.coordinator.decisions.transaction import (
    BeginCheckpoint,
    CommitCheckpoint,
    Effect,
    Transaction,
)
from disttrain.coordinator.errors import MessageRefused, Superseded
from disttrain.coordinator.journal.entries import Entry
from disttrain.coordinator.journal.job_entries import CheckpointEnded
from disttrain.coordinator.journal.journals import DecisionJournal
from disttrain.coordinator.process.checkpoints import Checkpoints
from disttrain.coordinator.process.reporting import Reporting
from disttrain.coordinator.protocol import messages, payloads
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.leave_notices import LeaveNoticeWatch
from disttrain.job import identity
from disttrain.launch.config import Supervisor
from disttrain.telemetry import logs
from disttrain.transport.header import EMPTY, Header, Role, Verb
from disttrain.transport.interface import Listener, Request
from disttrain.transport.peer import Impostors

LOG = logs.get(__name__)

_COMPLAINT_SECONDS = 10.0
_WORDS = 500
_UNREADABLE = "request"
"""Why a message is not this protocol's: its JSON is none of a request."""
_BATCH = 256
"""Requests whose entries are synced to disk together."""
_PAUSE_SECONDS = 1.0
_OWNER_SECONDS = 10.0
"""Between two looks for a newer coordinator while there is nothing to write."""
_ATTEMPT_SECONDS = 0.5
"""Between two attempts to write what a full disk refused: each may be a whole new journal."""
END_GRACE_SECONDS = 5.0
"""Time that members have to leave after the end, and that a stop waits for a disk."""
_LEAVE_SECONDS = 60.0
"""For a last checkpoint as this process leaves: half of the time that a pod gets to end."""
_LAUNCHER_ONLY = (messages.Fail, messages.MemberDied, messages.Stop)
_ALWAYS_TAKEN = (messages.Status, messages.Stop)
"""Also while the journal is behind: the one decides nothing, the other little, and people wait."""


class _Kept(NamedTuple):
    """A request for work whose reply is kept back, since there is none."""

    request: Request
    parsed: messages.RequestWork
    until: float
    """When it is answered in any case."""


@dataclass(kw_only=True, slots=True)
class Parts:
    """What the loop joins."""

    machine: Coordinator
    journal: DecisionJournal
    checkpoints: Checkpoints
    reporting: Reporting
    leave_notices: LeaveNoticeWatch
    """What members wrote down as they left."""
    supervisor: Supervisor
    clock: Callable[[], float]
    leaving: bool = False
    """By SIGTERM on a cluster: this process ends after a checkpoint, and the job goes on.

    Members are told nothing: they go on with what they have, and with the next incarnation, which
    has the journal."""
    tick_seconds: float = 0.05
    """Between two looks at what is due, while nobody asks for anything."""


class Service:
    """Belongs to one thread."""

    def __init__(self, parts: Parts, listener: Listener) -> None:
        self._parts = parts
        self._listener = listener
        self._impostors = Impostors(listener)
        self._peers: dict[MemberId, bytes] = {}
        self._pushed: set[int] = set()
        """Commands sent unasked; heartbeat replies repeat them."""
        self._replies: list[tuple[Request, messages.Reply]] = []
        """To be sent when what they rest on is in the journal."""
        self._kept: dict[MemberId, _Kept] = {}
        """A member's latest request, if it waits for something to happen."""
        self._has_changed = False
        """Something was decided since those were looked at."""
        self._next_tick = 0.0
        self._next_attempt = 0.0
        """To catch up with the journal."""
        self._next_owner_check = 0.0
        self._next_complaint = 0.0
        """In the log, about a request that cannot be read."""
        self._stopping_since: float | None = None
        """Time since which a stop waits for a disk that takes nothing."""
        self._leaving_since: float | None = None
        self._ended: float | None = None
        self._rotate = False

    def commit(self, transaction: Transaction) -> None:
        """Journals what was decided, then carries out its effects: more transactions follow."""
        self._parts.journal.append(tuple(transaction.decided))
        self._has_changed = self._has_changed or bool(transaction.decided)
        for entry in transaction.decided:
            self._note(entry)
        for effect in transaction.effects:
            self._carry_out(effect)

    def run(self) -> None:
        """Serves until the job has ended and everybody knows it, or this process has to leave."""
        while not self._is_over():
            self._serve()
            self._tick()
            self._decide_again()
            self._parts.journal.sync()
            if self._parts.journal.is_long:
                self._begin_journal()
            if not self._parts.journal.is_behind:
                self._answer()
            self._parts.reporting.is_halted = self._parts.journal.is_behind
            self._parts.reporting.write_if_due(self._parts.clock(), self._listener.refused)
        self._parts.leave_notices.finish()

    def _serve(self) -> None:
        self._catch_up()
        news = self._kept and self._has_changed and not self._parts.journal.is_behind
        request = self._listener.receive(0.0 if news else self._parts.tick_seconds)
        for left in reversed(range(_BATCH)):
            if request is None:
                break
            reply = self._handle(request)
            if reply is not None:
                self._replies.append((request, reply))
            # What is received here is handled here: after the last one, messages wait for the next
            # iteration.
            request = self._listener.receive(0.0) if left else None

    def _catch_up(self) -> None:
        now = self._parts.clock()
        if self._parts.journal.is_behind and now >= self._next_attempt:
            self._next_attempt = now + _ATTEMPT_SECONDS
            self._parts.journal.catch_up(self._parts.machine.state)

    def _answer(self) -> None:
        for request, reply in self._replies:
            self._reply(request, reply)
        self._replies.clear()
        self._push_commands()
        self._announce()

    def _handle(self, request: Request) -> messages.Reply | None:
        """The reply that has to wait for the journal, if any."""
        if request.header.verb != Verb.CONTROL_REQUEST:
            return None
        try:
            parsed = payloads.parse_request(request.payload)
        except MessageRefused as error:
            self._note_unreadable(request, str(error))
            self._refuse(request, messages.RefusalReason.MALFORMED, str(error))
            return None
        if not _is_allowed(request.role, parsed, self._parts.supervisor):
            words = f"{parsed.kind} is not for {request.role.name.lower()}s"
            self._refuse(request, messages.RefusalReason.NOT_ALLOWED, words)
            return None
        if why := speaking.impostor(self._parts.machine.state, request.identity, parsed):
            self._impostors.note(why)
            self._refuse(request, messages.RefusalReason.NOT_ALLOWED, why)
            return None
        # Not before it is known who speaks: it ends this process.
        if request.identity is None or not identity.is_joiner(request.identity.instance):
            self._require_newest(request.header)
        if self._parts.journal.is_behind and not isinstance(parsed, _ALWAYS_TAKEN):
            # Nothing is decided on a full disk, so that little has to be kept; members ask again.
            return None
        return self._decide(request, parsed)

    def _note_unreadable(self, request: Request, reason: str) -> None:
        """A line at most every few seconds: a flood of them is for the metrics."""
        self._listener.refused[_UNREADABLE] += 1
        now = self._parts.clock()
        if now >= self._next_complaint:
            self._next_complaint = now + _COMPLAINT_SECONDS
            count, sender = self._listener.refused[_UNREADABLE], request.header.sender
            LOG.warning("request refused", sender=sender, reason=reason[:_WORDS], so_far=count)

    def _decide(self, request: Request, parsed: messages.Request) -> messages.Reply | None:
        transaction = self._parts.machine.request(parsed, self._parts.clock())
        if isinstance(transaction.reply, messages.StatusReply):
            self._reply(request, transaction.reply)
            return None
        self.commit(transaction)
        if transaction.patience_seconds and isinstance(parsed, messages.RequestWork):
            self._keep(request, parsed, self._parts.clock() + transaction.patience_seconds)
            return None
        self._remember_peer(request, parsed, transaction.reply)
        return transaction.reply

    def _keep(self, request: Request, parsed: messages.RequestWork, until: float) -> None:
        """Keep a request back, in place of an older one or of the same one sent again.

        An older one is answered: it would be sent again and take the newer one's place.
        """
        kept = self._kept.get(parsed.member)
        if kept is not None and kept.request.header.sequence != request.header.sequence:
            self._replies.append((kept.request, messages.Work(wait=True)))
        self._kept[parsed.member] = _Kept(request, parsed, until)

    def _decide_again(self) -> None:
        """Requests that were kept back: all of them after news, otherwise those kept for long."""
        if self._parts.journal.is_behind:
            return
        now = self._parts.clock()
        news, self._has_changed = self._has_changed, False
        for member, kept in list(self._kept.items()):
            if not news and now < kept.until:
                continue
            transaction = self._parts.machine.request_again(kept.parsed, now)
            self.commit(transaction)
            is_due = now >= kept.until or not transaction.patience_seconds
            if transaction.reply is not None and is_due:
                del self._kept[member]
                self._replies.append((kept.request, transaction.reply))

    def _refuse(self, request: Request, reason: messages.RefusalReason, message: str) -> None:
        self._reply(request, messages.Refused(reason=reason, message=message))

    def _remember_peer(
        self, request: Request, parsed: messages.Request, reply: messages.Reply | None
    ) -> None:
        if isinstance(reply, messages.Joined):
            self._peers[reply.member] = request.peer
        elif isinstance(parsed, messages.Heartbeat) and isinstance(reply, messages.HeartbeatReply):
            self._peers[parsed.member] = request.peer
            # The reply holds every command, so none needs to be pushed again.
            self._pushed.update(command.id for command in reply.orders)

    def _tick(self) -> None:
        now = self._parts.clock()
        if self._parts.journal.is_behind:
            self._stop_in_vain(now)
            return
        self._stopping_since = None
        if now < self._next_tick:
            return
        if self._next_tick and now - self._next_tick > _PAUSE_SECONDS:
            # This process was stopped, or its disk slow or full; nobody's heartbeats were heard.
            self._parts.machine.watch.forgive(now - self._next_tick, now)
        self._next_tick = now + self._parts.tick_seconds
        if now >= self._next_owner_check:
            self._next_owner_check = now + _OWNER_SECONDS
            self._parts.journal.require_owner()
        self._hear_leave_notices(now)
        self.commit(self._parts.machine.tick(now))
        heard = self._parts.machine.watch.heard
        self._peers = {member: peer for member, peer in self._peers.items() if member in heard}
        self._pushed.intersection_update(self._parts.machine.state.orders)

    def _hear_leave_notices(self, now: float) -> None:
        parts = self._parts
        for name, notice in parts.leave_notices.found(now).items():
            self.commit(parts.machine.request(notice, now))
            parts.journal.sync()
            if parts.journal.is_behind:
                return
            parts.leave_notices.forget(name)

    def _stop_in_vain(self, now: float) -> None:
        """A stop waits a moment, not for ever, for a disk that takes no last checkpoint either."""
        machine = self._parts.machine
        if not machine.state.stopping or machine.state.phase.ended:
            return
        self._stopping_since = self._stopping_since or now
        if now - self._stopping_since >= END_GRACE_SECONDS:
            words = "stopped without a last checkpoint: the disk is full or fails"
            self.commit(machine.request(messages.Stop(reason=words, at_once=True), now))

    def _note(self, entry: Entry) -> None:
        if isinstance(entry, CheckpointEnded):
            self._rotate = self._rotate or entry.committed
        self._parts.reporting.note(entry, self._parts.clock())

    def _carry_out(self, effect: Effect) -> None:
        machine, clock = self._parts.machine, self._parts.clock
        # The files of a checkpoint may be a newer coordinator's by now.
        self._parts.journal.require_owner()
        failure = self._parts.checkpoints.carry_out(effect, machine.state)
        if isinstance(effect, CommitCheckpoint) or (
            isinstance(effect, BeginCheckpoint) and failure
        ):
            self.commit(machine.checkpoint_ended(effect.number, clock(), failure))
        if self._rotate:
            self._rotate = False
            self._begin_journal()

    def _begin_journal(self) -> None:
        try:
            self._parts.journal.begin(self._parts.machine.state)
        except (OSError, CheckpointError) as error:
            LOG.warning("journal not shortened", reason=str(error))

    def _reply(self, request: Request, reply: messages.Reply) -> None:
        header = self._header(Verb.CONTROL_REPLY, request.header.sequence)
        if not self._listener.reply(request, header, payloads.encode_reply(reply)):
            LOG.debug("reply not sent", kind=reply.kind, sender=request.header.sender)

    def _push_commands(self) -> None:
        machine = self._parts.machine
        for number in machine.state.orders.keys() - self._pushed:
            issued = machine.state.orders[number]
            peer = self._peers.get(issued.member)
            if peer is None:
                continue
            payload = payloads.encode_command(machine.numbered(issued))
            if self._listener.reply(peer, self._header(Verb.CONTROL_COMMAND, number), payload):
                self._pushed.add(number)

    def _announce(self) -> None:
        header = self._header(Verb.CONTROL_REPLY, messages.UNASKED)
        machine = self._parts.machine
        for role, news in machine.announcements(self._parts.clock(), len(self._peers)):
            payload = payloads.encode_reply(news)
            for member, peer in self._peers.items():
                if member.role is role:
                    self._listener.reply(peer, header, payload)

    def _header(self, verb: Verb, sequence: int) -> Header:
        """Members take nothing of a coordinator that is older than one that they have heard."""
        return EMPTY._replace(
            verb=verb,
            role=Role.COORDINATOR,
            incarnation=self._parts.machine.state.incarnation,
            sequence=sequence,
        )

    def _require_newest(self, header: Header) -> None:
        """Raises Superseded when a member has heard of a newer coordinator."""
        mine, heard = self._parts.machine.state.incarnation, header.receiver_incarnation
        if heard > mine:
            message = f"a member has heard of coordinator incarnation {heard}, this is {mine}"
            raise Superseded(message)

    def _is_over(self) -> bool:
        machine, now = self._parts.machine, self._parts.clock()
        if not machine.state.phase.ended:
            return self._parts.leaving and self._has_left(now)
        self._ended = self._ended or now
        waited = now - self._ended
        untold = self._parts.journal.is_behind or machine.state.orders
        return not untold or waited > END_GRACE_SECONDS

    def _has_left(self, now: float) -> bool:
        """Whether this process may end while the job goes on; begins a last checkpoint first."""
        machine, journal = self._parts.machine, self._parts.journal
        if self._leaving_since is None:
            LOG.info("leaves after a checkpoint", reason="SIGTERM")
            self._leaving_since = now
            if not journal.is_behind:
                self.commit(machine.save_now(now))
        is_busy = machine.state.checkpoint is not None or journal.is_behind
        return not is_busy or now - self._leaving_since > _LEAVE_SECONDS


def _is_allowed(role: Role, request: messages.Request, supervisor: Supervisor) -> bool:
    """Whether a sender of this role may say this: under TLS, its certificate proves the role."""
    if isinstance(request, messages.Fail) and supervisor is Supervisor.NODE:
        # Without a launcher, a member tells itself of the error that no restart heals.
        return role in {Role.SHARD, Role.REPLICA}
    if isinstance(request, _LAUNCHER_ONLY):
        return role is Role.LAUNCHER
    if isinstance(request, messages.Join):
        return role is request.role
    if isinstance(request, messages.Status):
        return True
    if isinstance(request, messages.AskPlacement):
        return role is Role.SHARD
    return role is request.member.role
