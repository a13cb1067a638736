"""What a fetch is served by where a rule makes what replicas compute with."""

from collections.abc import Callable

from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.update_rule import FetchContext
from disttrain.transport.header import Header


class FetchContexts:
    """All chunks of a fetch have the same; belongs to the shard's thread."""

    def __init__(self, state: ShardState, rate: Callable[[int], float]) -> None:
        """`rate`: of the next update, by the samples in the values."""
        self._state = state
        self._rate = rate
        self._latest: dict[SenderIncarnation, tuple[int, FetchContext]] = {}
        """Of each sender: the number of its latest fetch, and what that is served by."""

    def of(self, header: Header) -> FetchContext:
        """What a request of a fetch is served by."""
        incarnation, state = SenderIncarnation.of(header), self._state
        number, context = self._latest.get(incarnation, (-1, None))
        if context is None or number != header.sequence:
            context = FetchContext(
                sender=header.sender,
                mean_staleness=state.deliveries.of(*incarnation).mean_staleness,
                steps=state.count,
                rate=self._rate(state.samples),
                live_replicas=state.live_replicas,
            )
            # A copy of an earlier request that comes late is no news of the fetch under way.
            if header.sequence > number:
                self._latest[incarnation] = header.sequence, context
        return context

    def drop(self, incarnation: SenderIncarnation) -> None:
        """Forget what is known of this incarnation and of earlier ones."""
        incarnation.forget_in(self._latest)
