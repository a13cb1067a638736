"""The coordinator without its socket: events in, decisions out. Runs in the simulator as it is."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from disttrain.coordinator.decisions import answers, joining, membership, news, running, steering
from disttrain.coordinator.decisions.failures import Failures
from disttrain.coordinator.decisions.indices import LiveMembers, OpenCommands
from disttrain.coordinator.decisions.meetings import Meetings
from disttrain.coordinator.decisions.transaction import CoordinatorSide, Places, Transaction
from disttrain.coordinator.journal import job_entries
from disttrain.coordinator.journal.job_entries import CheckpointEnded
from disttrain.coordinator.journal.state import IssuedCommand, State
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.commands import Configure, NumberedCommand
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.notices import Remove
from disttrain.coordinator.settings import Settings
from disttrain.coordinator.status import status
from disttrain.coordinator.status.progress import at_work
from disttrain.coordinator.status.watch import Watch
from disttrain.transport.header import Role

_PAUSE_SECONDS_PER_MEMBER = 0.001
"""So that a thousand who join one after the other are not told of to a thousand each time."""

MemberRequest: TypeAlias = (
    messages.Heartbeat
    | messages.Meet
    | messages.RequestWork
    | messages.GroupDone
    | messages.CommandDone
    | messages.Leave
)
"""Requests of those who have joined."""


class Coordinator:
    """State, rules and what was heard lately. Each event gives the transaction that it led to."""

    def __init__(self, state: State, job: Sequence[CoordinatorSide], places: Places) -> None:
        self.state = state
        self.stages = job
        self._commands = OpenCommands(state)
        self._live = LiveMembers(state)
        self.watch = Watch()
        self._failures = Failures()
        self._meetings = Meetings()
        self._places = places
        self._announced = {Role.REPLICA: 0, Role.SHARD: 0}
        """Epochs."""
        self._next_announcement = 0.0

    @property
    def strategy(self) -> CoordinatorSide:
        return self.stages[at_work(self.stages, self.state)]

    @property
    def settings(self) -> Settings:
        return self.strategy.settings

    def restarted(self, now: float, committed: int | None) -> Transaction:
        """After a replay of the journal; `committed` is the newest checkpoint on disk."""
        transaction = self._transaction(now)
        transaction.record(job_entries.Restarted())
        opened = self.state.checkpoint
        if opened is not None:
            if opened.number == committed:
                transaction.record(CheckpointEnded(number=opened.number, committed=True))
            else:
                transaction.abandon_checkpoint(opened.number, "the coordinator restarted")
        steering.advance(transaction)
        return transaction

    def request(self, request: messages.Request | Remove, now: float) -> Transaction:
        transaction = self._transaction(now)
        transaction.reply = self._reply(transaction, request)
        if transaction.decided:
            steering.advance(transaction)
        is_heard = isinstance(transaction.reply, messages.HeartbeatReply)
        if is_heard and isinstance(request, messages.Heartbeat):
            transaction.reply = self._heartbeat_reply(transaction, request)
        return transaction

    def request_again(self, request: messages.RequestWork, now: float) -> Transaction:
        """A request whose reply was kept back. What it says of its sender is known, and old."""
        transaction = self._transaction(now)
        refusal = membership.admission(transaction, request.member)
        transaction.reply = refusal or steering.of_member(transaction, request.member).give(
            transaction, request
        )
        if transaction.decided:
            steering.advance(transaction)
        return transaction

    def tick(self, now: float) -> Transaction:
        transaction = self._transaction(now)
        if not self.state.phase.ended:
            membership.check_silence(transaction)
        steering.advance(transaction)
        if self.state.began is not None and self.state.ended is None:
            ended = self.state.totals.all_replicas()
            self.watch.note(self.state.samples, ended, now)
        return transaction

    def save_now(self, now: float) -> Transaction:
        """This process is about to end, and the job goes on later: a checkpoint, if one can be."""
        transaction = self._transaction(now)
        running.save_now(transaction)
        return transaction

    def checkpoint_ended(self, number: int, now: float, failure: str = "") -> Transaction:
        transaction = self._transaction(now)
        opened = self.state.checkpoint
        if opened is not None and opened.number == number:
            if failure:
                transaction.abandon_checkpoint(number, failure)
            else:
                transaction.record(CheckpointEnded(number=number, committed=True))
            steering.advance(transaction)
        return transaction

    def announcements(
        self, now: float, members: int
    ) -> Iterator[tuple[Role, messages.HeartbeatReply]]:
        """What to tell all of `members` that are of a role, when others have joined or ended.

        Who is not reached by it hears the same in the reply to a heartbeat.
        """
        if now < self._next_announcement:
            return
        for role, told in self._announced.items():
            epoch = news.epoch_for(self.state, role)
            if epoch != told:
                self._announced[role] = epoch
                self._next_announcement = now + members * _PAUSE_SECONDS_PER_MEMBER
                yield role, news.of_members(self._transaction(now), role)

    def commands_for(self, member: MemberId) -> tuple[NumberedCommand, ...]:
        return tuple(self.numbered(issued) for issued in self._commands.of_member(member))

    def numbered(self, issued: IssuedCommand) -> NumberedCommand:
        command = issued.order
        if isinstance(command, Configure):
            # The journal has these once, not once for each shard.
            known = self.state.data.samples
            command = replace(command, placement=self.state.placement, train_samples=known)
        return NumberedCommand(id=issued.id, order=command)

    def _transaction(self, now: float) -> Transaction:
        return Transaction(
            state=self.state,
            stages=self.stages,
            stage=at_work(self.stages, self.state),
            places=self._places,
            watch=self.watch,
            failures=self._failures,
            commands=self._commands,
            live=self._live,
            now=now,
        )

    def _reply(
        self, transaction: Transaction, request: messages.Request | Remove
    ) -> messages.Reply | None:
        match request:
            case messages.Join():
                return joining.join(transaction, request)
            case messages.AskPlacement():
                return news.placed(transaction)
            case messages.Status():
                found = status.status(self.state, self.stages, self.watch, transaction.now)
                return messages.StatusReply(status=found)
            case messages.Stop():
                steering.stop(transaction, request)
            case messages.MemberDied():
                membership.died(transaction, request)
            case Remove():
                membership.remove(transaction, request)
            case messages.Fail():
                transaction.fail(request.reason, request.message)
            case _:
                return self._member_reply(transaction, request)
        return messages.Acknowledged()

    def _member_reply(
        self, transaction: Transaction, request: MemberRequest
    ) -> messages.Reply | None:
        if isinstance(request, messages.Leave):
            membership.leave(transaction, request)
            return messages.Acknowledged()
        if refusal := membership.heard(transaction, request.member):
            return refusal
        if isinstance(request, messages.RequestWork | messages.GroupDone):
            return self._work_reply(transaction, request)
        if isinstance(request, messages.Heartbeat):
            return self._heard(transaction, request)
        if isinstance(request, messages.Meet):
            return self._meetings.meet(transaction, request)
        answers.command_done(transaction, request)
        return messages.Acknowledged()

    def _work_reply(
        self, transaction: Transaction, request: messages.RequestWork | messages.GroupDone
    ) -> messages.Reply | None:
        if request.member.partition:
            message = f"{request.member.name} has no work of its own: the first process of it has"
            return messages.Refused(reason=messages.RefusalReason.NOT_ALLOWED, message=message)
        found = transaction.state.group(request.member)
        if found is not None and not found.is_whole:
            return messages.Work(wait=True)
        if isinstance(request, messages.RequestWork):
            membership.take_progress(transaction, request.member, request.progress, 0)
            return steering.of_member(transaction, request.member).give(transaction, request)
        return transaction.strategy.take(transaction, request)

    def _heard(self, transaction: Transaction, request: messages.Heartbeat) -> messages.Reply:
        role = request.member.role
        is_replica = role is Role.REPLICA and not request.member.partition
        if request.replica is not None and is_replica:
            report = request.replica
            if report.steps:
                # Nobody begins a step before all have met.
                self._meetings.formed(request.member)
            before = self.watch.replicas.get(request.member)
            # A heartbeat that is sent again may come after a later one.
            if before is None or report.steps >= before.steps:
                self.watch.replicas[request.member] = report
            membership.take_progress(
                transaction, request.member, report.progress, report.non_finite
            )
        if request.shard is not None and role is Role.SHARD:
            self.watch.shards[request.member] = request.shard
            membership.take_losses(transaction, request.member, request.shard.lost)
        return messages.HeartbeatReply()

    def _heartbeat_reply(
        self, transaction: Transaction, request: messages.Heartbeat
    ) -> messages.HeartbeatReply:
        member = request.member
        return replace(
            news.since(transaction, member.role, request.epoch),
            orders=self.commands_for(member),
            lost_leases=membership.lost_leases(transaction, member),
        )
