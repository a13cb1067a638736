"""Starting a job again from the ledger of a checkpoint, by the same manifest or another. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from disttrain.coordinator.journal import batch_rules
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.phases import INCARNATIONS_PER_RUN, Phase
from disttrain.coordinator.protocol.fields import Position
from disttrain.job.spec import Spec
from disttrain.job.strategies.sandblaster import Lbfgs, Sandblaster
from disttrain.job.strategy_kind import Precision
from disttrain.job.update_rule import in_manifests
from disttrain.sandblaster.line_search import ArmijoRules

_STRATEGY = "spec.strategy.sandblaster"
_AGAIN = {"batchSize", "portionSize", "pushEveryPortions", "optimizer"}
"""Fields of it after whose change the method begins again."""


def from_ledger(state: State, source: str, shards: int) -> State:
    """The state to start with: everybody is gone, what they had not finished waits again.

    `shards` is how many there will be. The snapshot of the ledger was taken before the shards wrote
    their parts; what they hold beyond it is repeated, and counted when they join
    (`State.resumed_samples`). `state` itself is changed.
    """
    for group in state.replicas.values():
        if group.live:
            state.data.reconcile(group.member, Position(), Position())
            state.count_resumed(group.index, group.incarnation, group.progress.samples)
    for fencing in state.fencings:
        state.data.reconcile(fencing.member, Position(), Position())
        state.count_resumed(fencing.index, fencing.incarnation, fencing.samples)
    state.resumed_lives = dict(state.incarnations)
    state.totals.take_over_losses(shards)
    highest = max([state.first_incarnation, state.incarnation, *state.incarnations.values()])
    state.first_incarnation = (highest // INCARNATIONS_PER_RUN + 1) * INCARNATIONS_PER_RUN
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
    state.fencings, state.orders, state.removed = [], {}, []
    state.content = ()
    state.may_be_divided_anew = state.layout is not None
    state.checkpoint = None
    state.final_failures = 0
    state.checkpoint_failure = ""
    return state


class Effect(StrEnum):
    """Of a field that has changed."""

    TAKEN_OVER = "the method goes on by it, with all that it remembers"
    BEGINS_AGAIN = "the method begins again at the point that it had reached, and remembers nothing"
    IMPOSSIBLE = "the vectors of the checkpoint cannot be used"


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A field of the manifest that is another one than when the checkpoint was made."""

    field: str
    before: str
    now: str

    @property
    def effect(self) -> Effect:
        """Whoever adds a field to the strategy decides here."""
        if self.field.startswith(("precision", "warmStart")):
            return Effect.IMPOSSIBLE
        is_again = self.field in _AGAIN or self.field.endswith(".lineSearch")
        return Effect.BEGINS_AGAIN if is_again else Effect.TAKEN_OVER

    def __str__(self) -> str:
        return f"{_STRATEGY}.{self.field} was {self.before} and is {self.now}: {self.effect}"


def between(before: Sandblaster, now: Sandblaster) -> tuple[Change, ...]:
    return _compared(_values(before), _values(now))


def begins_again(changes: Iterable[Change]) -> bool:
    """Whether the method cannot go on with what it remembers."""
    return any(change.effect is Effect.BEGINS_AGAIN for change in changes)


def impossible(found: State, spec: Spec) -> str | None:
    """Why a checkpoint cannot be gone on with, and what to do; None if it can."""
    before = found.data.seed
    if found.data.samples > 0 and spec.seed != before:
        return (
            f"spec.seed was {before} and is {spec.seed}: portions are cut by it, so samples of "
            f"this epoch would be repeated, and others left out. Set {before}, or begin a new run"
        )
    now = spec.strategy.sandblaster
    if found.batch is None or now is None:
        return None
    return refusal(between(found.batch.rules, now))


def impossible_in_warm_start(rule: str, precision: Precision, now: Sandblaster) -> str | None:
    """The same for a checkpoint of a warm start by this update rule, whose state it holds."""
    first = now.warm_start
    section = "warmStart"
    if first is not None:
        section += ".downpour.optimizer" if first.sgd is None else ".sgd"
    kind = "null" if first is None else first.rule.update_rule
    held = {"precision": precision, section: in_manifests(rule)}
    wanted = {"precision": now.precision, section: in_manifests(kind)}
    return refusal(_compared(held, wanted))


def refusal(changes: Iterable[Change]) -> str | None:
    """Why a checkpoint cannot be gone on with after these changes; None if it can."""
    for change in changes:
        if change.effect is Effect.IMPOSSIBLE:
            return f"{change}. Set {change.before}, or begin a new run"
    return None


def _compared(before: Mapping[str, object], now: Mapping[str, object]) -> tuple[Change, ...]:
    changes = (
        Change(field=field, before=str(before[field]), now=str(value))
        for field, value in now.items()
        if field in before
    )
    return tuple(change for change in changes if change.before != change.now)


def _values(rules: Sandblaster) -> dict[str, object]:
    """By the fields' names. Of two kinds of optimizers no more is compared."""
    method, backup = rules.optimizer.rule, rules.backup_tasks
    kind = type(method).__name__
    name = kind[0].lower() + kind[1:]
    is_armijo = isinstance(batch_rules.search(rules), ArmijoRules)
    return {
        "precision": rules.precision,
        "batchSize": rules.batch_size,
        "portionSize": rules.portion_size,
        "pushEveryPortions": rules.push_every_portions,
        "backupTasks.enabled": backup.enabled,
        "backupTasks.startWhenRemaining": backup.start_when_remaining,
        "optimizer": name,
        f"optimizer.{name}.lineSearch": "armijo" if is_armijo else "strongWolfe",
        f"optimizer.{name}.history": method.history if isinstance(method, Lbfgs) else None,
        f"optimizer.{name}.gradientTolerance": method.gradient_tolerance,
        f"optimizer.{name}.changeTolerance": method.change_tolerance,
    }
