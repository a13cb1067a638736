"""What the journal says of orders, leases and progress, and what each entry means."""

from dataclasses import dataclass, field

from disttrain.coordinator.journal.state import IssuedOrder, Phase, State
from disttrain.coordinator.protocol.fields import Lease, MemberId, Progress, Tagged
from disttrain.coordinator.protocol.orders import Admit, Order


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderIssued(Tagged, kind="order_issued"):
    """An order was given."""

    id: int
    member: MemberId
    order: Order
    shards: dict[int, int] = field(default_factory=dict)

    def apply(self, state: State) -> None:
        state.next_order = self.id + 1
        if isinstance(self.order, Admit):
            return
        state.orders[self.id] = IssuedOrder(
            id=self.id, member=self.member, order=self.order, shards=self.shards
        )
        if state.batch is not None:
            state.batch.give(self.order)


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderClosed(Tagged, kind="order_closed"):
    """An order was answered or is void."""

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
        if found := state.life(self.member):
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
        if found := state.life(self.member):
            at_end = state.phase not in {Phase.WAITING, Phase.RUNNING} and not state.may_go_on
            state.count_own_data(found, self.progress.samples)
            state.data.finish(self.member, self.progress, at_end=at_end)
            found.progress = self.progress
            found.drained = True
