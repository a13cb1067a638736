"""Downpour SGD (DistBelief 4.1): portions of the data are leased to replicas. Decides; no I/O."""

from dataclasses import dataclass, replace
from typing import Self

from disttrain.coordinator.decisions import membership, running
from disttrain.coordinator.decisions.turn import CoordinatorSide, Turn
from disttrain.coordinator.journal import work_entries
from disttrain.coordinator.journal.state import Phase, State
from disttrain.coordinator.leases import portions
from disttrain.coordinator.protocol.fields import Lease, MemberId
from disttrain.coordinator.protocol.messages import RequestWork, Work
from disttrain.coordinator.protocol.orders import Upload
from disttrain.coordinator.settings import Settings
from disttrain.job.strategies.downpour import Downpour

MOST_PORTIONS = 2**23
"""The coordinator takes up to 420 bytes for each, as it reads its journal: 3.5 GB."""
_MOST_OPEN = 64
"""Leases of one replica that may be computed but not acknowledged."""
_ASK_AGAIN_SECONDS = 0.1
_ASK_AGAIN_SECONDS_PER_REPLICA = 0.005
"""All replicas wait while shards are prepared, and all but one in a warm start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asynchronous(CoordinatorSide):
    """Replicas work on whatever is left of the data; nothing ever waits for all of them."""

    of = Downpour

    warm_start_samples: int = 0
    """Samples that one replica processes alone first (DistBelief 4.1)."""

    @staticmethod
    def kept(rule: Downpour) -> tuple[str, ...]:
        return rule.optimizer.rule.kept

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

    def run(self, turn: Turn) -> None:
        running.run(turn)

    def give(self, turn: Turn, request: RequestWork) -> Work:
        """Leases for a replica, those first whose answer was lost on the way."""
        member = request.member
        lost = membership.lost_leases(turn, member)
        is_running = turn.state.phase is Phase.RUNNING
        later = turn.state.phase is Phase.WAITING or turn.state.may_go_on
        # Also those that are lost: only of what it has seen a replica can say that it gave it up.
        held = turn.state.data.held(member) if is_running or turn.state.may_go_on else []
        leases = portions.unseen(held, request.last_lease)
        if is_running and not lost and not turn.state.warm_start.ended:
            speed = turn.watch.speed_of(member, turn.now)
            ahead = portions.leases_ahead(turn.state.data.portion_size, speed)
            leases += self._grant(turn, member, ahead - request.held - len(leases))
        replicas = len(turn.live.replicas())
        return Work(
            leases=tuple(leases),
            wait=is_running or later or bool(lost),
            after_seconds=max(_ASK_AGAIN_SECONDS, replicas * _ASK_AGAIN_SECONDS_PER_REPLICA),
            lost_leases=lost,
            live_replicas=replicas,
        )

    def _grant(self, turn: Turn, member: MemberId, wanted: int) -> list[Lease]:
        data, stop = turn.state.data, turn.settings.stop
        if not self._may_work(turn, member):
            return []
        granted: list[Lease] = []
        while len(granted) < wanted and len(data.held(member)) < _MOST_OPEN:
            lease = portions.next_lease(data, member.index, stop)
            if lease is not None:
                turn.record(work_entries.LeaseGranted(member=member, lease=lease))
                granted.append(lease)
            elif portions.may_open_epoch(data, stop):
                turn.record(work_entries.EpochOpened())
            else:
                break
        return granted

    def _may_work(self, turn: Turn, member: MemberId) -> bool:
        """All do after the warm start, before it the lowest living replica.

        Not who owes an empty shard its values: a push would wait for them, and they for the push.
        """
        if any(issued.member == member for issued in turn.orders.of_kind(Upload)):
            return False
        lowest = next((replica.index for replica in turn.live.replicas()), None)
        return not self.is_warming_up(turn.state) or member.index == lowest
