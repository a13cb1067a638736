"""Which pushes are too old at a shard, and which wait so that no others get too old."""

from collections.abc import Callable
from typing import NoReturn

from disttrain.job.staleness import Maximum, Policy
from disttrain.parameter_server.bounded_staleness import BoundedStaleness
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import Refused, ShardState
from disttrain.parameter_server.messages import Side
from disttrain.transport.header import Header, Reason

_GiveUp = Callable[[Header, Reason, str], NoReturn]


class MaximumStaleness:
    """Of one shard; belongs to its thread."""

    def __init__(self, state: ShardState, maximum: Maximum, give_up: _GiveUp) -> None:
        """`give_up`: refuses the push that a header is of, for good, and says why."""
        self._state = state
        self._most = maximum.updates
        self._give_up = give_up
        waits = maximum.policy is Policy.WAIT
        self._bounded = BoundedStaleness(self._most) if waits else None
        """None: no push waits for others'."""

    @property
    def waited_seconds(self) -> float:
        """Pushes have waited for those of others so long, in all."""
        return 0.0 if self._bounded is None else self._bounded.waited_seconds

    def check(self, header: Header, staleness: int) -> None:
        """Of a push, by its first chunk: what is begun is applied, whoever pushes meanwhile.

        `staleness`: -1 if nobody knows it; such a push is not too old. Raises Refused for one that
        is too old, and for one whose turn is later.
        """
        sender = SenderIncarnation.of(header)
        if self._bounded is not None and staleness >= 0:
            self._bounded.arrived(sender, header.sequence, header.version, self._now())
        if staleness > self._most:
            most = f"staleness.maximum.updates is {self._most}"
            self._give_up(header, Reason.TOO_STALE, f"is {staleness} updates old, {most}")
        if (refused := self._not_its_turn(header)) is not None:
            raise refused

    def is_waiting(self, header: Header) -> bool:
        """Whether the first chunk of this push is to come again."""
        bounded, sender = self._bounded, SenderIncarnation.of(header)
        return bounded is not None and bounded.is_waiting(sender, header.sequence)

    def why_waits(self, header: Header) -> Refused | None:
        """Why a push that is about to be sent is to come later; `header` says HELLO."""
        is_same = header.count == Side.PUSH and self.is_waiting(header)
        return self._not_its_turn(header) if is_same else None

    def fetched(self, header: Header) -> None:
        """Something is fetched, perhaps to compute a gradient of it."""
        if self._bounded is not None and header.local_steps:
            self._bounded.fetched(SenderIncarnation.of(header), self._state.count, self._now())

    def begun(self, header: Header) -> None:
        """The first chunk of a push is about to be applied."""
        if self._bounded is not None:
            self._bounded.begun(SenderIncarnation.of(header), self._now())

    def ended(self, header: Header) -> None:
        """A push is complete, or was given up."""
        if self._bounded is not None:
            self._bounded.ended(SenderIncarnation.of(header))

    def drop(self, incarnation: SenderIncarnation) -> None:
        """Forget this incarnation of a sender and earlier ones."""
        if self._bounded is not None:
            self._bounded.drop(incarnation)

    def clear(self) -> None:
        """The values are those of a checkpoint now."""
        if self._bounded is not None:
            self._bounded.clear()

    def _not_its_turn(self, header: Header) -> Refused | None:
        sender, bounded = SenderIncarnation.of(header), self._bounded
        if bounded is None or bounded.may_begin(sender, self._state.count, self._now()):
            return None
        sentence = f"push {header.sequence} waits for older gradients of other replicas"
        return Refused(Reason.BUSY, sentence, is_repeat=True)

    def _now(self) -> float:
        return 0.0 if self._state.clock is None else self._state.clock()
