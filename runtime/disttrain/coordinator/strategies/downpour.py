"""Downpour SGD (DistBelief 4.1): portions of the data are leased to replicas. Decides; no I/O."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from disttrain.coordinator.decisions import membership, running
from disttrain.coordinator.decisions.transaction import CoordinatorSide, Transaction
from disttrain.coordinator.journal import member_entries
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.leases.data_ledger import ANYBODY, DataLedger, Epoch, OpenLease
from disttrain.coordinator.phases import Phase
from disttrain.coordinator.protocol.commands import Upload
from disttrain.coordinator.protocol.fields import Lease, MemberId
from disttrain.coordinator.protocol.messages import RequestWork, Work
from disttrain.coordinator.settings import Settings
from disttrain.job.stop import Stop
from disttrain.job.strategies.downpour import Downpour
from disttrain.job.strategy_kind import StrategyKind

MOST_PORTIONS = 2**23
"""The coordinator takes up to 420 bytes for each, as it reads its journal: 3.5 GB."""
_MOST_OPEN = 64
_COVER_SECONDS = 0.25
"""Work that a replica holds ahead: several times what an answer takes on a busy machine."""
_MOST_LEASES = 8
_ASK_AGAIN_SECONDS = 0.1
_ASK_AGAIN_SECONDS_PER_REPLICA = 0.005
"""All replicas wait while shards are prepared, and all but one in a warm start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asynchronous(CoordinatorSide):
    """Replicas work on whatever is left of the data; nothing ever waits for all of them."""

    of: ClassVar[type[StrategyKind]] = Downpour

    warm_start_samples: int = 0
    """Samples that one replica processes alone first (DistBelief 4.1)."""

    @staticmethod
    def kept(rule: Downpour) -> tuple[str, ...]:
        return rule.vectors

    @classmethod
    def made(cls, rule: Downpour, common: Settings) -> Self:
        bound = rule.staleness_bound
        return cls(
            settings=replace(common, staleness_bound=bound, most_portions=MOST_PORTIONS),
            warm_start_samples=rule.warm_start_samples,
        )

    def has_begun(self, state: State) -> bool:
        """From the beginning: it is always the first."""
        del state
        return True

    def is_warming_up(self, state: State) -> bool:
        return state.samples < self.warm_start_samples

    def run(self, transaction: Transaction) -> None:
        running.run(transaction)

    def give(self, transaction: Transaction, request: RequestWork) -> Work:
        """Leases for a replica, those first whose answer was lost on the way."""
        member = request.member
        lost = membership.lost_leases(transaction, member)
        is_running = transaction.state.phase is Phase.RUNNING
        later = transaction.state.phase is Phase.WAITING or transaction.state.may_go_on
        # Also those that are lost: only of what it has seen a replica can say that it gave it up.
        held = (
            transaction.state.data.held(member) if is_running or transaction.state.may_go_on else []
        )
        leases = unseen(held, request.last_lease)
        if is_running and not lost and not transaction.state.warm_start.ended:
            speed = transaction.watch.speed_of(member, transaction.now)
            ahead = leases_ahead(transaction.state.data.portion_size, speed)
            leases += self._grant(transaction, member, ahead - request.held - len(leases))
        replicas = len(transaction.live.replicas())
        return Work(
            leases=tuple(leases),
            wait=is_running or later or bool(lost),
            after_seconds=max(_ASK_AGAIN_SECONDS, replicas * _ASK_AGAIN_SECONDS_PER_REPLICA),
            lost_leases=lost,
            live_replicas=replicas,
        )

    def most_open(self, data: DataLedger) -> int:
        """Leases of one replica that may be computed but not acknowledged."""
        del data
        return _MOST_OPEN

    def _grant(self, transaction: Transaction, member: MemberId, wanted: int) -> list[Lease]:
        data, stop = transaction.state.data, transaction.settings.stop
        if not self._may_work(transaction, member):
            return []
        granted: list[Lease] = []
        while len(granted) < wanted and len(data.held(member)) < self.most_open(data):
            lease = next_lease(data, member.index, stop)
            if lease is not None:
                transaction.record(member_entries.LeaseGranted(member=member, lease=lease))
                granted.append(lease)
            elif may_open_epoch(data, stop):
                transaction.record(member_entries.EpochOpened())
            else:
                break
        return granted

    def _may_work(self, transaction: Transaction, member: MemberId) -> bool:
        """All do after the warm start, before it the lowest living replica.

        Not who owes an empty shard its values: a push would wait for them, and they for the push.
        """
        if any(issued.member == member for issued in transaction.commands.of_kind(Upload)):
            return False
        if not self.is_warming_up(transaction.state):
            return True
        # Who joins first is chance. Once another one had begun, the warm start would not be its.
        if member.index and self._awaits_first(transaction):
            return False
        lowest = next((replica.index for replica in transaction.live.replicas()), None)
        return member.index == lowest

    def _awaits_first(self, transaction: Transaction) -> bool:
        """Whether replica 0 is still to join, for as long as a silent one would be missed."""
        state = transaction.state
        since = 0.0 if state.began is None else transaction.now - state.began
        return 0 not in state.replicas and since < transaction.settings.member_timeout_seconds


def next_lease(ledger: DataLedger, index: int, stop: Stop) -> Lease | None:
    """The lease to grant: own portions of the oldest epoch first, then anybody's, then others'.

    With a limit of samples anybody's come first. They hold what was taken from the silent, who may
    do it nevertheless: with other samples in its place that would be too many.
    None: nothing waits in the open epochs, or the stop rules leave no samples to give out.
    """
    budget = remaining_samples(ledger, stop)
    if budget is not None and budget <= 0:
        return None
    first_keys = (index, ANYBODY) if budget is None else (ANYBODY, index)
    for number in sorted(ledger.epochs):
        for queue in _queues(ledger.epochs[number], first_keys):
            portion, first, end = queue[-1]
            end = end if budget is None else min(end, first + budget)
            return Lease(id=ledger.next_lease, epoch=number, portion=portion, first=first, end=end)
    return None


def may_open_epoch(ledger: DataLedger, stop: Stop) -> bool:
    """Whether another pass over the data may begin."""
    budget = remaining_samples(ledger, stop)
    return (
        ledger.samples > 0
        and (stop.epochs is None or ledger.next_epoch < stop.epochs)
        and (budget is None or budget > 0)
    )


def remaining_samples(ledger: DataLedger, stop: Stop) -> int | None:
    """Samples that may still be given out before a stop rule is met exactly; None: no limit."""
    budgets = []
    if stop.samples is not None:
        used = ledger.samples_done + ledger.samples_outside
        budgets.append(stop.samples - used - sum(ledger.outstanding()))
    if stop.steps is not None:
        steps = sum(-(-samples // ledger.batch_size) for samples in ledger.outstanding())
        budgets.append((stop.steps - ledger.steps_done - steps) * ledger.batch_size)
    return min(budgets) if budgets else None


def leases_ahead(portion_size: int, samples_per_second: float) -> int:
    """How many leases a replica should hold: the current one, and enough for a while beyond it."""
    ahead = samples_per_second * _COVER_SECONDS / max(portion_size, 1)
    return min(2 + int(ahead), _MOST_LEASES)


def unseen(held: list[OpenLease], last_lease: int) -> list[Lease]:
    """Leases granted whose reply was lost: the replica has not seen their ids."""
    return [item.lease for item in held if item.lease.id > last_lease]


def _queues(epoch: Epoch, first_keys: Sequence[int]) -> Iterator[list[tuple[int, int, int]]]:
    for key in first_keys:
        if queue := epoch.queues.get(key):
            yield queue
    others = ((key, queue) for key, queue in epoch.queues.items() if queue)
    for key, queue in sorted(others, key=lambda item: (-len(item[1]), item[0])):
        if key not in first_keys:
            yield queue
