"""What a shard gathers of several replicas until it merges them, and who waits for that."""

from collections.abc import Collection, Iterable
from functools import partial

from disttrain.holder.values import Values
from disttrain.job.merged import OWN
from disttrain.parameter_server import quorum
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.outer_rules.merged import MergedRule
from disttrain.parameter_server.quorum import Quorum
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.update_rule import Chunk
from disttrain.state.vector import Vector
from disttrain.telemetry import logs

LOG = logs.get(__name__)


class Merging:
    """Of one shard; belongs to its thread.

    A push is applied when it is in its replica's own vector: from then on it is counted, stored and
    never applied again. A merge only moves what is there already.
    """

    def __init__(
        self, rule: MergedRule, state: ShardState, records: Records, *, waits: bool
    ) -> None:
        """`waits`: replicas compute nothing before they have what they fetch."""
        self._rule = rule
        self._state = state
        self._records = records
        self._patience = partial(quorum.patience, waits=waits)
        self._quorum = Quorum(rule.config.quorum, rule.config.grace_seconds)
        self._served_at: dict[int, float] = {}
        """By replica, when it began to get what it computes with."""
        self._waits_until: dict[int, float] = {}
        """By replica, how long its next fetch may wait."""

    @property
    def ends_at(self) -> float | None:
        return self._quorum.ends_at

    def restore(self) -> None:
        """Begin with what a checkpoint holds.

        Who has left the job for good has no vector any more.
        """
        self._quorum.merged()
        gathered, replicas = self._state.gathered, self._rule.config.replicas
        lost = {sender: gathered.pop(sender) for sender in list(gathered) if sender >= replicas}
        if lost:
            LOG.warning("goes on without replicas whose pushes were not merged", samples=lost)

    def pushed(self, sender: int, samples: int) -> None:
        """A push is complete."""
        gathered, clock = self._state.gathered, self._state.clock
        gathered[sender] = gathered.get(sender, 0) + samples
        if clock is not None:
            now, began = clock(), self._served_at.get(sender)
            self._waits_until[sender] = now + self._patience(None if began is None else now - began)

    def is_due(self, live: Collection[int]) -> bool:
        """Whether to merge now."""
        state = self._state
        if state.clock is None or not state.is_initialised:
            return False
        return self._quorum.is_due(state.gathered, live, state.clock())

    def holds(self, sender: int, vector: Vector | None) -> bool:
        """Whether a fetch has to be asked for again, since a merge may come in time."""
        clock, gathered = self._state.clock, self._state.gathered
        if clock is None or vector is None or vector.name != OWN:
            return False
        if sender in gathered and clock() < self._waits_until.get(sender, 0.0):
            return True
        self._waits_until.pop(sender, None)
        self._served_at[sender] = clock()
        return False

    def looked(self, sender: int) -> None:
        """It has fetched what evaluations measure, and waits for no merge any more."""
        self._waits_until.pop(sender, None)

    def merge(self, values: Values, rate: float) -> None:
        """Bring what is gathered into the parameters."""
        state, share, trained = self._state, values.share, values.trained
        weights = quorum.weights(state.gathered)
        for number in range(share.num_chunks(trained)):
            part = share.chunk(trained, number)
            if state.cut is not None:
                state.cut.before_change(part)
            chunk = Chunk(values.part(part), values.beside(part), {})
            self._rule.merge(chunk, weights, rate)
        self._records.merged(state.count, sum(state.gathered.values()))
        state.gathered.clear()
        self._quorum.merged()

    def forget(self, senders: Iterable[int]) -> None:
        """How fast these replicas were says nothing of their next incarnations."""
        for sender in senders:
            self._served_at.pop(sender, None)
            self._waits_until.pop(sender, None)
