"""Starting a job again from the ledger of a checkpoint. Pure."""

from disttrain.coordinator.journal.state import LIVES_PER_RUN, Phase, State
from disttrain.coordinator.protocol.fields import Position


def from_ledger(state: State, source: str, shards: int) -> State:
    """The state to start with: everybody is gone, what they had not finished waits again.

    `shards` is how many there will be.

    The ledger was cut before the shards wrote their parts; what they hold beyond it is repeated,
    and counted when they join (`State.resumed_samples`). `state` itself is changed.
    """
    for life in state.replicas.values():
        if life.live:
            state.data.settle(life.member, Position(), Position())
        state.count_resumed(life.index, life.incarnation, life.progress.samples)
    for fencing in state.fencings:
        state.data.settle(fencing.member, Position(), Position())
    state.totals.take_over_losses(shards)
    highest = max([state.first_incarnation, state.incarnation, *state.incarnations.values()])
    state.first_incarnation = (highest // LIVES_PER_RUN + 1) * LIVES_PER_RUN
    state.incarnation = state.first_incarnation + 1
    if state.batch is None:
        state.warm_start.cut = None
    else:
        state.batch.resume(state.incarnation)
    state.resumed_from = source
    state.elapsed += max(0.0, (state.ledger_time or 0.0) - (state.began or 0.0))
    state.phase = Phase.WAITING
    state.began = state.ended = state.checkpoint_tried = state.evaluation_tried = None
    state.reason = state.message = ""
    state.stopping = False
    state.replicas, state.shards = {}, {}
    state.fencings, state.orders = [], {}
    state.checkpoint = None
    state.final_failures = 0
    state.checkpoint_failure = ""
    return state
