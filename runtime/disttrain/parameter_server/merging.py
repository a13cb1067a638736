"""What a shard gathers of several replicas until it merges them, and who waits for that.

Each fragment of the parameters by itself; without fragments, they are one.
"""

from collections.abc import Collection, Iterable
from functools import partial

from disttrain.holder.values import Values
from disttrain.job.merged import OWN
from disttrain.parameter_server import quorum
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.outer_rules.merged import MergedRule
from disttrain.parameter_server.quorum import Quorum, Rounds, Work
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.update_rule import Chunk
from disttrain.state.fragments import WHOLE, Fragment
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
        self._own_grace = partial(quorum.grace, waits=waits)
        config = rule.config
        self._quorums = [Quorum(config.quorum) for _ in range(config.fragments)]
        """Of each fragment."""
        self._rounds: dict[int, Rounds] = {}
        """By replica."""
        self._served_at: dict[int, float] = {}
        """By replica, when it began to get what it computes with."""
        self._waits_until: dict[int, float] = {}
        """By replica, how long its next fetch may wait."""

    @property
    def ends_at(self) -> float | None:
        known = [each.ends_at for each in self._quorums if each.ends_at is not None]
        return min(known, default=None)

    def restore(self) -> None:
        """Begin with what a checkpoint holds.

        Who has left the job for good has no vector any more.
        """
        for each in self._quorums:
            each.merged()
        gathered, lost = self._state.gathered, dict[int, int]()
        for fragment, work in list(gathered.items()):
            for sender in [one for one in work if one >= self._rule.config.replicas]:
                lost[sender] = max(lost.get(sender, 0), work.pop(sender).samples)
            if not work:
                del gathered[fragment]
        if lost:
            LOG.warning("goes on without replicas whose pushes were not merged", samples=lost)

    def pushed(self, sender: int, fragment: Fragment, work: Work) -> None:
        """A push is complete."""
        gathered = self._state.gathered.setdefault(fragment.number, {})
        before = gathered.get(sender)
        gathered[sender] = work if before is None else before.and_then(work)
        clock = self._state.clock
        if clock is not None:
            now, began = clock(), self._served_at.get(sender)
            rounds = self._rounds.setdefault(sender, Rounds(len(self._quorums)))
            rounds.pushed(fragment.number, now, began)
            self._waits_until[sender] = now + self._patience(None if began is None else now - began)

    def _grace(self, present: Collection[int]) -> float:
        if self._rule.config.grace_seconds is not None:
            return self._rule.config.grace_seconds
        known = [self._rounds[one].seconds for one in present if one in self._rounds]
        return self._own_grace([seconds for seconds in known if seconds is not None])

    def due(self, live: Collection[int]) -> list[int]:
        """Fragments to merge now."""
        state = self._state
        if state.clock is None or not state.is_initialised:
            return []
        now, gathered = state.clock(), state.gathered
        return [
            fragment
            for fragment, quorum in enumerate(self._quorums)
            if quorum.is_due(present := gathered.get(fragment, {}), live, now, self._grace(present))
        ]

    def holds(self, sender: int, vector: Vector | None, fragment: Fragment) -> bool:
        """Whether a fetch has to be asked for again, since a merge may come in time."""
        clock = self._state.clock
        if clock is None or vector is None or vector.name != OWN:
            return False
        is_gathered = any(
            sender in work
            for number, work in self._state.gathered.items()
            if number == fragment.number or fragment == WHOLE
        )
        if is_gathered and clock() < self._waits_until.get(sender, 0.0):
            return True
        self._waits_until.pop(sender, None)
        self._served_at[sender] = clock()
        return False

    def looked(self, sender: int) -> None:
        """It has fetched what evaluations measure, and waits for no merge any more."""
        self._waits_until.pop(sender, None)

    def merge(self, number: int, values: Values, rate: float) -> None:
        """Bring what is gathered of a fragment into the parameters."""
        state, fragment = self._state, Fragment(number, len(self._quorums))
        work = state.gathered.pop(number)
        weights = quorum.weights(work)
        for part in values.share.fragment_chunks(values.trained, fragment):
            if state.cut is not None:
                state.cut.before_change(part)
            chunk = Chunk(values.part(part), values.beside(part), {})
            self._rule.merge(chunk, weights, rate)
        self._records.merged(state.count, number, sum(one.samples for one in work.values()))
        self._quorums[number].merged()

    def forget(self, senders: Iterable[int]) -> None:
        """How fast these replicas were says nothing of their next incarnations."""
        for sender in senders:
            for noted in (self._served_at, self._waits_until, self._rounds):
                noted.pop(sender, None)
