"""Giving out work. Decides; no I/O."""

from disttrain.coordinator.decisions import membership, warm_start
from disttrain.coordinator.decisions.turn import Turn
from disttrain.coordinator.journal import work_entries
from disttrain.coordinator.journal.state import Phase
from disttrain.coordinator.leases import portions
from disttrain.coordinator.protocol.fields import Lease, MemberId
from disttrain.coordinator.protocol.messages import RequestWork, Work

_MOST_OPEN = 64
"""Leases of one replica that may be computed but not acknowledged."""
_ASK_AGAIN_SECONDS = 0.1
_ASK_AGAIN_SECONDS_PER_REPLICA = 0.005
"""All replicas wait while shards are prepared, and all but one in a warm start."""


def request_work(turn: Turn, request: RequestWork) -> Work:
    """Leases for a replica, those first whose answer was lost on the way."""
    member = request.member
    membership.take_progress(turn, member, request.progress, 0)
    lost = membership.lost_leases(turn, member)
    running = turn.state.phase is Phase.RUNNING
    is_over = turn.state.warm_start.ended
    later = turn.state.phase is Phase.WAITING or turn.state.may_go_on
    # Also those that are lost: only of what it has seen a replica can say that it gave it up.
    known = running or turn.state.may_go_on
    held = turn.state.data.held(member) if known else []
    leases = portions.unseen(held, request.last_lease)
    if running and not lost and not is_over:
        wanted = _wanted(turn, member) - request.held - len(leases)
        leases += _grant(turn, member, wanted)
    return _work(turn, tuple(leases), wait=running or later or bool(lost), lost=lost)


def _wanted(turn: Turn, member: MemberId) -> int:
    speed = turn.watch.speed_of(member, turn.now)
    return portions.leases_ahead(turn.state.data.portion_size, speed)


def _grant(turn: Turn, member: MemberId, wanted: int) -> list[Lease]:
    data, settings = turn.state.data, turn.settings
    lowest = next((replica.index for replica in turn.live_replicas()), None)
    done = data.samples_done + data.samples_outside
    if not warm_start.may_work(member.index, lowest, done, settings.warm_start_samples):
        return []
    granted: list[Lease] = []
    while len(granted) < wanted and len(data.held(member)) < _MOST_OPEN:
        lease = portions.next_lease(data, member.index, settings.stop)
        if lease is not None:
            turn.record(work_entries.LeaseGranted(member=member, lease=lease))
            granted.append(lease)
        elif portions.may_open_epoch(data, settings.stop):
            turn.record(work_entries.EpochOpened())
        else:
            break
    return granted


def _work(turn: Turn, leases: tuple[Lease, ...], *, wait: bool, lost: tuple[int, ...]) -> Work:
    replicas = len(turn.live_replicas())
    return Work(
        leases=leases,
        wait=wait,
        after_seconds=max(_ASK_AGAIN_SECONDS, replicas * _ASK_AGAIN_SECONDS_PER_REPLICA),
        lost_leases=lost,
        live_replicas=replicas,
    )
