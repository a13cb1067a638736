"""What the journal says of members, their commands, leases and progress."""

from dataclasses import dataclass, field

from disttrain.coordinator.journal.group import Group, Process
from disttrain.coordinator.journal.state import Fencing, IssuedCommand, State
from disttrain.coordinator.phases import IncarnationState, Phase
from disttrain.coordinator.protocol.commands import Admit, Command
from disttrain.coordinator.protocol.fields import (
    Lease,
    LostUpdates,
    MemberId,
    Partitions,
    Position,
    Progress,
    Restored,
    SenderPosition,
    Tagged,
)
from disttrain.coordinator.protocol.notices import REMOVED
from disttrain.coordinator.protocol.reports import ReplicaReport, ShardReport
from disttrain.transport.header import Role

_INSTANCES_KEPT = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberJoined(Tagged, kind="member_joined"):
    """A process has joined its group: its present incarnation, or as the first one of the next."""

    member: MemberId
    partitions: Partitions = 1
    instance: str
    pid: int
    address: str
    metrics_address: str
    own_data: bool
    place: str = ""
    now: float

    def apply(self, state: State) -> None:
        state.members_changed(self.member.role)
        group = state.group(self.member) or self._begun(state)
        process = Process(
            instance=self.instance,
            pid=self.pid,
            address=self.address,
            metrics_address=self.metrics_address,
            place=self.place,
        )
        group.add(self.member.partition, process)
        group.joined = self.now
        group.own_data = self.own_data

    def _begun(self, state: State) -> Group:
        """A new incarnation in the place of the one before."""
        role, index = self.member.role, self.member.index
        groups, name = state.groups(role), self.member.group
        if (before := groups.get(index)) is not None:
            if before.incarnation > state.first_incarnation:
                state.totals.add_restart(role)
            state.old_instances += [process.instance for process in before.processes.values()]
            del state.old_instances[:-_INSTANCES_KEPT]
        state.incarnations[name] = max(self.member.incarnation, state.incarnations.get(name, 0))
        groups[index] = Group(
            role=role,
            index=index,
            incarnation=self.member.incarnation,
            partitions=self.partitions,
        )
        return groups[index]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardRestored(Tagged, kind="shard_restored"):
    """A shard's new incarnation says what it came back with."""

    member: MemberId
    restored: Restored

    def apply(self, state: State) -> None:
        shard = state.shards[self.member.index]
        shard.initialised = self.restored.initialised
        for number in self.restored.damaged:
            state.totals.note_damaged(number)
        for sender in self.restored.senders:
            of = sender.sender
            if of.incarnation <= state.first_incarnation:
                more = state.count_resumed(of.index, of.incarnation, of.samples)
                # The restored shards hold these and the resumed ledger does not: they come again.
                state.data.samples_repeated += more
            if sender.acknowledged:
                lost = LostUpdates(index=of.index, incarnation=of.incarnation, lost=sender.lost)
                state.totals.set_updates_lost(self.member.index, lost)


@dataclass(frozen=True, kw_only=True, slots=True)
class LossCorrected(Tagged, kind="loss_corrected"):
    """An update that a shard reported as lost was sent again: its answer had not arrived."""

    shard: int
    sender: LostUpdates

    def apply(self, state: State) -> None:
        state.totals.set_updates_lost(self.shard, self.sender)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberLost(Tagged, kind="member_lost"):
    """A group's incarnation has ended, with all of its members.

    A replica's last position is asked from the shards unless it left.
    """

    member: MemberId
    state: IncarnationState
    reason: str
    shards: tuple[int, ...] = ()
    """Shards to be asked."""
    replica: ReplicaReport | None = None
    """Its last report."""
    shard: ShardReport | None = None

    def apply(self, state: State) -> None:
        found = state.group(self.member)
        if found is None:
            return
        found.state = self.state
        found.reason = self.reason
        state.members_changed(self.member.role)
        state.totals.add_report(self.member, self.replica, self.shard)
        of_it = [one.id for one in state.orders.values() if one.member.speaker == self.member]
        for number in of_it:
            del state.orders[number]
        if self.member.role is Role.REPLICA:
            self._replica_lost(state, found)

    def _replica_lost(self, state: State, found: Group) -> None:
        state.drop_groups(self.member)
        state.totals.add_non_finite(self.member.index, found.non_finite)
        found.non_finite = 0
        if self.shards:
            fencing = Fencing(
                index=self.member.index,
                incarnation=self.member.incarnation,
                waiting=list(self.shards),
                samples=found.progress.samples,
            )
            state.fencings.append(fencing)
        elif self.state is IncarnationState.DEAD:
            # No shard can have applied anything beyond what it has reported.
            state.data.reconcile(self.member, Position(), Position())


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinerRemoved(Tagged, kind="joiner_removed"):
    """The run's owner has taken a joiner away for good."""

    place: str

    def apply(self, state: State) -> None:
        state.removed = [*state.removed, self.place]
        for found in state.replicas.values():
            if found.place == self.place:
                found.reason = REMOVED


@dataclass(frozen=True, kw_only=True, slots=True)
class FenceAnswered(Tagged, kind="fence_answered"):
    """A shard said how far a dead replica got there."""

    shard: int
    sender: SenderPosition
    partial_chunks: int

    def apply(self, state: State) -> None:
        sender = self.sender
        dead = MemberId(role=Role.REPLICA, index=sender.index, incarnation=sender.incarnation)
        found = state.group(dead)
        if found is not None:
            state.count_own_data(found, sender.samples)
        for fencing in state.fencings:
            if fencing.member != dead or self.shard not in fencing.waiting:
                continue
            if found is not None:
                fencing.samples = found.progress.samples
            fencing.waiting.remove(self.shard)
            state.totals.partial_chunks += self.partial_chunks
            fencing.lowest = min(fencing.lowest or sender.position, sender.position)
            fencing.highest = max(fencing.highest or sender.position, sender.position)
            if not fencing.waiting:
                state.data.reconcile(dead, fencing.lowest, fencing.highest)
        state.fencings = [fencing for fencing in state.fencings if fencing.waiting]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardConfigured(Tagged, kind="shard_configured"):
    """A shard knows its ranges."""

    member: MemberId

    def apply(self, state: State) -> None:
        if found := state.group(self.member):
            found.configured = True


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardInitialised(Tagged, kind="shard_initialised"):
    """A shard has all its values."""

    member: MemberId

    def apply(self, state: State) -> None:
        if found := state.group(self.member):
            found.initialised = True


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandIssued(Tagged, kind="order_issued"):
    """A command was given."""

    id: int
    member: MemberId
    order: Command
    shards: dict[int, int] = field(default_factory=dict)

    def apply(self, state: State) -> None:
        state.next_order = self.id + 1
        if isinstance(self.order, Admit):
            return
        state.orders[self.id] = IssuedCommand(
            id=self.id, member=self.member, order=self.order, shards=self.shards
        )
        if state.batch is not None:
            state.batch.give(self.order)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandClosed(Tagged, kind="order_closed"):
    """A command was answered or is void."""

    id: int

    def apply(self, state: State) -> None:
        state.orders.pop(self.id, None)


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochOpened(Tagged, kind="epoch_opened"):
    """Another pass over the data begins."""

    def apply(self, state: State) -> None:
        state.data.open_epoch()


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseGranted(Tagged, kind="lease_granted"):
    """A replica got a range of samples."""

    member: MemberId
    lease: Lease

    def apply(self, state: State) -> None:
        state.data.grant(self.member, self.lease)


@dataclass(frozen=True, kw_only=True, slots=True)
class Progressed(Tagged, kind="progressed"):
    """A replica has finished more."""

    member: MemberId
    progress: Progress
    non_finite: int

    def apply(self, state: State) -> None:
        if found := state.group(self.member):
            state.count_own_data(found, self.progress.samples)
            state.data.advance(self.member, self.progress)
            found.progress = self.progress
            found.non_finite = max(found.non_finite, self.non_finite)


@dataclass(frozen=True, kw_only=True, slots=True)
class LeasesExpired(Tagged, kind="leases_expired"):
    """A silent replica lost its leases."""

    member: MemberId

    def apply(self, state: State) -> None:
        state.data.expire(self.member)
        state.drop_groups(self.member)


@dataclass(frozen=True, kw_only=True, slots=True)
class Drained(Tagged, kind="drained"):
    """A replica pushes nothing more."""

    member: MemberId
    progress: Progress

    def apply(self, state: State) -> None:
        if found := state.group(self.member):
            at_end = state.phase not in {Phase.WAITING, Phase.RUNNING} and not state.may_go_on
            state.count_own_data(found, self.progress.samples)
            state.data.finish(self.member, self.progress, at_end=at_end)
            found.progress = self.progress
            found.drained = True
