"""What Downpour asks of the other sections."""

from disttrain.job.finding import Path, Severity
from disttrain.job.rule import Rule, for_strategy
from disttrain.job.spec import Spec
from disttrain.job.strategies.downpour import Downpour

_DOWNPOUR: Path = ("spec", "strategy", "downpour")


def _pushes_keep_the_rate(_: Spec, found: Downpour) -> str | None:
    return None if found.push_every == 1 else found.optimizer.rule.effect_of_sums(found.push_every)


def _several_begin_gently(spec: Spec, found: Downpour) -> str | None:
    replicas = spec.replicas.count
    if replicas == 1 or found.warm_start is not None:
        return None
    return found.optimizer.rule.hasty_beginning(replicas)


RULES = (
    Rule(
        "`pushEvery` above 1 changes what a `learningRate` means, but of rules as plain as sgd.",
        (*_DOWNPOUR, "pushEvery"),
        (_DOWNPOUR,),
        for_strategy(Downpour, _pushes_keep_the_rate),
        Severity.WARNING,
    ),
    Rule(
        "A rule whose first steps are its largest begins, with several replicas, with a rate that "
        "grows or a `warmStart`, or adagrad with an `initialAccumulator`.",
        (*_DOWNPOUR, "optimizer"),
        (_DOWNPOUR, ("spec", "replicas", "count")),
        for_strategy(Downpour, _several_begin_gently),
        Severity.WARNING,
    ),
)
