"""What another manifest at a resume means for a batch method, or for its warm start. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from disttrain.coordinator.journal import batch_rules
from disttrain.job.batch_optimizer import BatchRule, Lbfgs
from disttrain.job.sandblaster import Precision, Sandblaster

_STRATEGY = "spec.strategy.sandblaster"


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
    effect: Effect

    def __str__(self) -> str:
        """A sentence without its full stop."""
        return f"{_STRATEGY}.{self.field} was {self.before} and is {self.now}: {self.effect}"


def between(before: Sandblaster, now: Sandblaster) -> tuple[Change, ...]:
    """All that is different."""
    return tuple(change for change in _fields(before, now) if change.before != change.now)


def begins_again(changes: tuple[Change, ...]) -> bool:
    """Whether the method cannot go on with what it remembers."""
    return any(change.effect is Effect.BEGINS_AGAIN for change in changes)


def impossible(before: Sandblaster, now: Sandblaster) -> str | None:
    """Why a checkpoint cannot be gone on with, and what to do; None if it can."""
    return _refusal(between(before, now))


def impossible_in_warm_start(rule: str, precision: Precision, now: Sandblaster) -> str | None:
    """The same for a checkpoint of a warm start by this update rule, whose state it holds."""
    first = now.warm_start
    section = "warmStart"
    if first is not None:
        section += ".downpour.optimizer" if first.sgd is None else ".sgd"
    kind = "null" if first is None else first.rule.optimizer.rule.name
    fields = (
        _change("precision", precision, now.precision, Effect.IMPOSSIBLE),
        _change(section, rule, kind, Effect.IMPOSSIBLE),
    )
    return _refusal(change for change in fields if change.before != change.now)


def _refusal(changes: Iterable[Change]) -> str | None:
    for change in changes:
        if change.effect is Effect.IMPOSSIBLE:
            return f"{change}. Set {change.before}, or begin a new run"
    return None


def _fields(before: Sandblaster, now: Sandblaster) -> Iterator[Change]:
    again, taken_over = Effect.BEGINS_AGAIN, Effect.TAKEN_OVER
    yield _change("precision", before.precision, now.precision, Effect.IMPOSSIBLE)
    yield _change("batchSize", before.batch_size, now.batch_size, again)
    yield _change("portionSize", before.portion_size, now.portion_size, again)
    yield _change("pushEveryPortions", before.push_every_portions, now.push_every_portions, again)
    old, new = before.backup_tasks, now.backup_tasks
    yield _change("backupTasks.enabled", old.enabled, new.enabled, taken_over)
    later = old.start_when_remaining, new.start_when_remaining
    yield _change("backupTasks.startWhenRemaining", *later, taken_over)
    yield from _of_method(before, now)


def _of_method(before: Sandblaster, now: Sandblaster) -> Iterator[Change]:
    old, new = before.optimizer.rule, now.optimizer.rule
    name = _name(new)
    if name != _name(old):
        yield _change("optimizer", _name(old), name, Effect.BEGINS_AGAIN)
        return
    section = f"optimizer.{name}"
    searches = _search(before), _search(now)
    yield _change(f"{section}.lineSearch", *searches, Effect.BEGINS_AGAIN)
    if isinstance(old, Lbfgs) and isinstance(new, Lbfgs):
        yield _change(f"{section}.history", old.history, new.history, Effect.TAKEN_OVER)
    tolerances = old.gradient_tolerance, new.gradient_tolerance
    yield _change(f"{section}.gradientTolerance", *tolerances, Effect.TAKEN_OVER)
    tolerances = old.change_tolerance, new.change_tolerance
    yield _change(f"{section}.changeTolerance", *tolerances, Effect.TAKEN_OVER)


def _change(field: str, before: object, now: object, effect: Effect) -> Change:
    return Change(field=field, before=str(before), now=str(now), effect=effect)


def _name(rule: BatchRule) -> str:
    kind = type(rule).__name__
    return kind[0].lower() + kind[1:]


def _search(rules: Sandblaster) -> str:
    kind = type(batch_rules.search(rules)).__name__
    return {"WolfeRules": "strongWolfe", "ArmijoRules": "armijo"}[kind]
