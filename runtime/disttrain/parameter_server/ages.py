"""Which pushes are too old at a shard, and which wait so that no others get too old."""

from disttrain.job.staleness import Maximum, Policy
from disttrain.parameter_server.bounded_staleness import BoundedStaleness
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import Refused, ShardState
from disttrain.parameter_server.messages import Side
from disttrain.transport.header import Header, Reason


class Ages:
    """Of one shard; belongs to its thread."""

    def __init__(self, state: ShardState, maximum: Maximum) -> None:
        self._state = state
        self._most = maximum.updates
        waits = maximum.policy is Policy.WAIT
        self._bounded = BoundedStaleness(self._most) if waits else None
        """None: no push waits for others'."""
        self._waiting: dict[SenderIncarnation, int] = {}
        """Numbers of pushes that were told to wait."""

    @property
    def waited_seconds(self) -> float:
        """Pushes have waited for those of others so long, in all."""
        return 0.0 if self._bounded is None else self._bounded.waited_seconds

    def why_too_old(self, header: Header, staleness: int) -> str | None:
        """Of a push, by its first chunk: what is begun is applied, whoever pushes meanwhile.

        `staleness`: -1 if nobody knows it. Raises Refused for one that is to come again, since its
        turn is later.
        """
        if self._bounded is not None and staleness >= 0:
            self._bounded.arrived(header.sender, header.version, self._now())
        if staleness > self._most:
            return f"is {staleness} updates old, staleness.maximum.updates is {self._most}"
        if staleness >= 0 and (refused := self._refused(header)) is not None:
            self._waiting[SenderIncarnation.of(header)] = header.sequence
            raise refused
        return None

    def has_refused(self, header: Header) -> bool:
        """Whether the first chunk of this push is to come again."""
        return self._waiting.get(SenderIncarnation.of(header)) == header.sequence

    def waits(self, header: Header) -> Refused | None:
        """Why a push that is about to be sent is to come later; `header` says HELLO."""
        is_same = header.count == Side.PUSH and self.has_refused(header)
        return self._refused(header) if is_same else None

    def fetched(self, header: Header) -> None:
        """Something is fetched, perhaps to compute a gradient of it."""
        if self._bounded is not None and header.local_steps:
            self._bounded.fetched(header.sender, self._state.count, self._now())

    def begun(self, header: Header) -> None:
        """The first chunk of a push is about to be applied."""
        self._waiting.pop(SenderIncarnation.of(header), None)
        if self._bounded is not None:
            self._bounded.begun(header.sender, self._now())

    def ended(self, header: Header) -> None:
        """A push is complete, or was given up."""
        self._waiting.pop(SenderIncarnation.of(header), None)
        if self._bounded is not None:
            self._bounded.ended(header.sender, self._now())

    def drop(self, incarnation: SenderIncarnation) -> None:
        incarnation.forget_in(self._waiting)
        if self._bounded is not None:
            self._bounded.drop(incarnation.sender)

    def _refused(self, header: Header) -> Refused | None:
        now, bounded = self._now(), self._bounded
        if bounded is None or bounded.may_begin(header.sender, self._state.count, now):
            return None
        sentence = f"push {header.sequence} waits for older gradients of other replicas"
        return Refused(Reason.BUSY, sentence, is_repeat=True)

    def _now(self) -> float:
        return 0.0 if self._state.clock is None else self._state.clock()
