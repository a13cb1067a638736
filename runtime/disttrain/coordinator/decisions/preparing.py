"""How shards get their first values, in every life. Decides; no I/O."""

from disttrain.coordinator.decisions import membership, placing
from disttrain.coordinator.decisions.turn import Turn
from disttrain.coordinator.journal.state import Life, LifeState
from disttrain.coordinator.protocol.orders import Configure, Evaluate, Upload


def prepare_shards(turn: Turn) -> None:
    """Tells every shard the placement, and has a replica send values to those without any."""
    if placing.decide(turn) is None:
        return
    turn.tell((shard for shard in turn.live.shards() if not shard.configured), Configure())
    empty = [shard for shard in turn.live.shards() if not shard.initialised]
    ready = all(shard.configured for shard in empty) and (
        turn.state.began is not None or len(turn.live.shards()) == turn.settings.shards
    )
    if empty and ready:
        _upload(turn, empty)


def _upload(turn: Turn, empty: list[Life]) -> None:
    if turn.orders.of_kind(Upload):
        return
    replicas = turn.live.workers()
    evaluating = {issued.member for issued in turn.orders.of_kind(Evaluate)}
    free = [
        replica
        for replica in replicas
        if not turn.state.data.held(replica.member) and replica.member not in evaluating
    ]
    if free:
        order = Upload(shards=tuple(shard.index for shard in empty))
        lives = {shard.index: shard.incarnation for shard in empty}
        turn.issue(free[0].member, order, lives)
    elif len(replicas) >= turn.settings.replicas:
        # Each may be waiting for this very shard to answer a push, and would wait for ever.
        reason = f"{empty[0].member.name} needs initial values, which a new life can send"
        membership.lose(turn, replicas[0], LifeState.DEAD, reason)
