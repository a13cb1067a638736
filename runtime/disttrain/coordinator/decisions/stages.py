"""The strategies of a job one after another, such as a warm start and a batch method.

A stage ends when its samples are processed. Then nothing more is given out, every replica pushes
what it has, and a checkpoint is made of what the shards have come to. With this one the next stage
begins, whatever dies later. Decides; no I/O.
"""

from disttrain.coordinator.decisions import running
from disttrain.coordinator.decisions.turn import CoordinatorSide, Turn
from disttrain.coordinator.journal import batch_entries
from disttrain.coordinator.journal.state import Phase, StopReason
from disttrain.coordinator.protocol import orders
from disttrain.coordinator.protocol.fields import MemberId


def run(turn: Turn) -> None:
    """Takes the steps of the stage at work, and those that lead to the next one."""
    following = turn.following
    if following is None:
        _tell_replicas(turn)
        turn.strategy.run(turn)
    elif following.fits(turn):
        if not turn.state.warm_start.ended:
            _train(turn)
        if turn.state.warm_start.ended and turn.state.phase is Phase.RUNNING:
            _end(turn, following)


def of_member(turn: Turn, member: MemberId) -> CoordinatorSide:
    """The stage that a replica works in: every one begins with the first, whenever it joined."""
    found = turn.state.life(member)
    has_left = turn.stage == 0 or (found is not None and found.left_warm_start)
    return turn.strategy if has_left else turn.stages[turn.stage - 1]


def _tell_replicas(turn: Turn) -> None:
    if turn.stage:
        behind = (one for one in turn.live.replicas() if not one.left_warm_start)
        turn.tell(behind, orders.LeaveWarmStart())


def _train(turn: Turn) -> None:
    if running.met_rule(turn) is StopReason.SAMPLES:
        turn.record(batch_entries.WarmStartEnded())
    else:
        turn.strategy.run(turn)


def _end(turn: Turn, following: CoordinatorSide) -> None:
    busy = [replica for replica in turn.live.replicas() if not replica.drained]
    turn.tell(busy, orders.Drain())
    found = turn.state
    if busy or found.fencings or found.checkpoint is not None or not turn.holders_ready():
        return
    cut = found.warm_start.cut
    if cut is None:
        cut = found.next_checkpoint
        turn.record(batch_entries.WarmStartDrained(checkpoint=cut))
    if (found.last_checkpoint or 0) >= cut:
        turn.stage += 1
        following.begin(turn, found.last_checkpoint)
    elif found.next_checkpoint == cut or running.may_try_checkpoint_again(turn):
        running.begin_checkpoint(turn)
