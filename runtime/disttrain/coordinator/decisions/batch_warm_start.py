"""What comes before a batch method: Downpour, until all of its samples are processed.

Then nothing more is given out, every replica pushes what it has, and a checkpoint is made of what
the shards have come to. To this one all shards return as shards of the batch method: it is the
first cut, whatever dies later. Decides; no I/O.
"""

from disttrain.coordinator.decisions import batch, running, stop_rules
from disttrain.coordinator.decisions.turn import Turn
from disttrain.coordinator.journal import batch_entries
from disttrain.coordinator.journal.state import Phase, StopReason
from disttrain.coordinator.protocol import orders
from disttrain.coordinator.protocol.fields import MemberId


def run(turn: Turn) -> None:
    """Takes the steps that are due before the method begins."""
    if batch.groups_of_the_data(turn) is None:
        return
    if not turn.state.warm_start.ended:
        _train(turn)
    if turn.state.warm_start.ended and turn.state.phase is Phase.RUNNING:
        _end(turn)


def tell_replicas(turn: Turn) -> None:
    """Every replica, whenever it joined, begins with the warm start, which may be over."""
    if not turn.settings.follows_warm_start:
        return
    told = {issued.member for issued in turn.open_orders(orders.LeaveWarmStart)}
    for replica in turn.live_replicas():
        if not replica.left_warm_start and replica.member not in told:
            turn.issue(replica.member, orders.LeaveWarmStart())


def has_left(turn: Turn, member: MemberId) -> bool:
    """Whether a replica works for the batch method, which has begun."""
    found = turn.state.life(member)
    return not turn.settings.follows_warm_start or (found is not None and found.left_warm_start)


def _train(turn: Turn) -> None:
    reason = stop_rules.met(turn.settings.stop, running.reached(turn))
    if reason is StopReason.SAMPLES:
        turn.record(batch_entries.WarmStartEnded())
    else:
        running.run(turn)


def _end(turn: Turn) -> None:
    busy = [replica for replica in turn.live_replicas() if not replica.drained]
    running.have_drained(turn, busy)
    found = turn.state
    if busy or found.fencings or found.checkpoint is not None or not turn.shards_ready():
        return
    cut = found.warm_start.cut
    if cut is None:
        cut = found.next_checkpoint
        turn.record(batch_entries.WarmStartDrained(checkpoint=cut))
    if (found.last_checkpoint or 0) >= cut:
        turn.settings = turn.settings.last
        batch.begin(turn, found.last_checkpoint)
    elif found.next_checkpoint == cut or running.may_try_checkpoint_again(turn):
        running.begin_checkpoint(turn)
