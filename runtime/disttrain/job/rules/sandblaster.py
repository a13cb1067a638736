"""What a batch method asks of the other sections, and they of it."""

from operator import attrgetter

from pydantic.alias_generators import to_camel

from disttrain.job.finding import Path, Severity
from disttrain.job.rule import STRATEGIES, Rule, for_strategy
from disttrain.job.spec import Spec
from disttrain.job.strategies.sandblaster import Sandblaster, lack_of_groups
from disttrain.job.strategy_kind import Numbers

LEAST_GROUPS = 3
"""Of a batch that is smaller than the data: two are shared with its neighbours."""

_SANDBLASTER: Path = ("spec", "strategy", "sandblaster")
_BATCH: Path = (*_SANDBLASTER, "batchSize")
_STOP: Path = ("spec", "stop")


def _not_for_it(statement: str, path: Path, attribute: str, instead: str) -> Rule:
    """A batch method has another field in place of this one."""
    given = attrgetter(attribute)

    def check(spec: Spec, _: Sandblaster) -> str | None:
        if given(spec) is None:
            return None
        return f"is not for sandblaster, got {given(spec)}; set spec.{instead}"

    expression = f"!has(self.strategy.sandblaster) || !has(self.{'.'.join(map(str, path[1:]))})"
    return Rule(
        statement,
        path,
        (),
        for_strategy(Sandblaster, check),
        expression=expression,
        sections=STRATEGIES,
    )


def _iterations_are_its_own(spec: Spec) -> str | None:
    if isinstance(spec.strategy.rule, Sandblaster) or spec.stop.iterations is None:
        return None
    return f"is for sandblaster, got {spec.stop.iterations}; set spec.stop.steps"


def _warm_start_is_left_behind(spec: Spec, found: Sandblaster) -> str | None:
    samples = spec.stop.samples
    if found.warm_start is None or samples is None or samples > found.warm_start.samples:
        return None
    return (
        f"must be more than strategy.sandblaster.warmStart.samples ({found.warm_start.samples}), "
        f"else the method never begins, got {samples}"
    )


def _is_not_recorded(spec: Spec, _: Sandblaster) -> str | None:
    if not spec.record:
        return None
    return "must be false with sandblaster: the same manifest gives the same bits without a record"


def _batch_has_groups(_: Spec, found: Sandblaster) -> str | None:
    if isinstance(found.batch_size, str):
        return None
    group = found.group_samples
    most_refused = (LEAST_GROUPS - 1) * group
    if found.batch_size > most_refused:
        return None
    return (
        f"must make at least {LEAST_GROUPS} groups of portionSize {found.portion_size} times "
        f"pushEveryPortions {found.push_every_portions} = {group} samples: more than "
        f"{most_refused}, got {found.batch_size}; take smaller portions, or fewer to a group"
    )


def _small_batches_are_lbfgs(_: Spec, found: Sandblaster) -> str | None:
    if isinstance(found.batch_size, str) or found.optimizer.lbfgs is not None:
        return None
    return f"must be all for every optimizer but lbfgs, got {found.batch_size}"


def _replicas_have_groups(spec: Spec, found: Sandblaster) -> str | None:
    groups = found.groups_of_a_batch
    lack = None if groups is None else lack_of_groups(groups, spec.replicas.count)
    return lack and f"{lack}; take smaller portions, or fewer to a group"


def _warm_start_has_its_numbers(name: str) -> Rule:
    """What comes before a method computes and travels in the method's numbers."""
    numbers = attrgetter(name)

    def check(_: Spec, found: Sandblaster) -> str | None:
        rule = None if found.warm_start is None else found.warm_start.rule
        if rule is None or numbers(rule) is Numbers.FLOAT32:
            return None
        return (
            f"is for strategy.downpour, got {numbers(rule)}; before a method the vectors are its "
            f"own, which are {found.precision}; leave it out"
        )

    return Rule(
        f"A warm start computes and travels in the method's numbers, without `{to_camel(name)}`.",
        (*_SANDBLASTER, "warmStart", "downpour", to_camel(name)),
        ((*_SANDBLASTER, "warmStart"),),
        for_strategy(Sandblaster, check),
    )


def _warm_start_has_no_average(_: Spec, found: Sandblaster) -> str | None:
    if found.warm_start is None or found.warm_start.rule.ema is None:
        return None
    return "is for strategy.downpour: a method goes on from the parameters; leave it out"


RULES = (
    _not_for_it(
        "Sandblaster has no `spec.batchSize`, but a `portionSize` of its own.",
        ("spec", "batchSize"),
        "batch_size",
        "strategy.sandblaster.portionSize",
    ),
    _not_for_it(
        "Sandblaster has no `spec.portionSize`, but one of its own.",
        ("spec", "portionSize"),
        "portion_size",
        "strategy.sandblaster.portionSize",
    ),
    _not_for_it(
        "`spec.stop.steps` is not for sandblaster.",
        (*_STOP, "steps"),
        "stop.steps",
        "stop.iterations",
    ),
    Rule(
        "`spec.stop.iterations` is for sandblaster.",
        (*_STOP, "iterations"),
        (),
        _iterations_are_its_own,
        expression="has(self.strategy.sandblaster) || !has(self.stop.iterations)",
        sections=STRATEGIES,
    ),
    Rule(
        "`spec.stop.samples` is more than those of sandblaster's `warmStart`, which it counts.",
        (*_STOP, "samples"),
        ((*_SANDBLASTER, "warmStart"),),
        for_strategy(Sandblaster, _warm_start_is_left_behind),
        expression="!has(self.strategy.sandblaster) || "
        "!has(self.strategy.sandblaster.warmStart) || !has(self.stop.samples) || "
        "self.stop.samples > self.strategy.sandblaster.warmStart.samples",
    ),
    Rule(
        "A warm start keeps no average: the method goes on from the parameters.",
        (*_SANDBLASTER, "warmStart", "downpour", "ema"),
        ((*_SANDBLASTER, "warmStart"),),
        for_strategy(Sandblaster, _warm_start_has_no_average),
    ),
    *map(_warm_start_has_its_numbers, ("precision", "push_as", "fetch_as")),
    Rule(
        "Sandblaster is not recorded: the same manifest gives the same bits.",
        ("spec", "record"),
        (),
        for_strategy(Sandblaster, _is_not_recorded),
        expression="!has(self.strategy.sandblaster) || !self.record",
        sections=STRATEGIES,
    ),
    Rule(
        "A `batchSize` of sandblaster that is a number makes at least three groups of portions.",
        _BATCH,
        (_SANDBLASTER,),
        for_strategy(Sandblaster, _batch_has_groups),
    ),
    Rule(
        "A `batchSize` of sandblaster that is a number is for L-BFGS.",
        _BATCH,
        ((*_SANDBLASTER, "optimizer"),),
        for_strategy(Sandblaster, _small_batches_are_lbfgs),
    ),
    Rule(
        "A `batchSize` of sandblaster that makes fewer groups of portions than there are replicas "
        "leaves some without work. Whether `all` does is said when the data is known.",
        _BATCH,
        (_SANDBLASTER, ("spec", "replicas", "count")),
        for_strategy(Sandblaster, _replicas_have_groups),
        Severity.WARNING,
    ),
)
