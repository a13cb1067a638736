"""A shard whose batch method has a warm start: first it is one of Downpour, then of the method.

It turns by the order to return to the checkpoint with which the warm start has ended. A life that
begins with a checkpoint of the warm start is one of Downpour again, until it gets that order.
"""

from collections.abc import Callable

from disttrain.coordinator.protocol import orders
from disttrain.holder.values import Values
from disttrain.holder.writing import Cut
from disttrain.parameter_server.batch_figures import BatchFigures
from disttrain.parameter_server.batch_shard import SandblasterShard
from disttrain.parameter_server.batch_values import BatchValues
from disttrain.parameter_server.deliveries import Delivered, SenderLife
from disttrain.parameter_server.downpour_shard import DownpourShard
from disttrain.parameter_server.restoring import RestoredShard
from disttrain.parameter_server.shard import Answers, Shard
from disttrain.sandblaster.names import TRIAL
from disttrain.state.share import Share
from disttrain.transport.header import Header, Reason, Verb


class WarmStartedShard(Shard):
    """See `Shard`: says everything to one of two shards, which have state and records in common."""

    def __init__(self, first: DownpourShard, then: SandblasterShard) -> None:
        super().__init__(first.state, first.records)
        first.refused = then.refused = self.refused
        self._then = then
        self._now: DownpourShard | SandblasterShard = first

    @property
    def figures(self) -> BatchFigures:
        return self._now.figures

    @property
    def keeps_updates(self) -> bool:
        return self._now.keeps_updates

    def make_room(self, share: Share) -> Values:
        return self._now.make_room(share)

    def restore(self, restored: RestoredShard) -> None:
        """See `Shard.restore`. Raises WrongSnapshot."""
        if isinstance(restored.values, BatchValues):
            self._now = self._then
        self._now.restore(restored)

    def protect(self, cut: Cut | None) -> None:
        self._now.protect(cut)

    def fence(self, life: SenderLife) -> Delivered:
        return self._now.fence(life)

    def carry_out(self, order: orders.Order) -> orders.Result:
        return self._now.carry_out(order)

    def reload(self, checkpoint: int) -> RestoredShard:
        return self._then.reload(checkpoint)

    def return_to(self, checkpoint: int, read: Callable[[], RestoredShard]) -> orders.Result:
        self._now = self._then
        return self._now.return_to(checkpoint, read)

    def handle(self, header: Header, payload: memoryview) -> Answers:
        if self._now is not self._then and self._is_of_a_batch(header):
            # From a replica that does not know yet that this life is a new one.
            return self._refuse(header, Reason.WRONG_EVALUATION, "no evaluation is under way")
        return self._now.handle(header, payload)

    def _is_of_a_batch(self, header: Header) -> bool:
        values = self.state.values
        fetched = None if values is None else values.share.placement.vector(header.vector)
        is_trial = header.verb == Verb.FETCH and fetched is not None and fetched.name == TRIAL
        return is_trial or header.verb == Verb.STAGE
