"""What Downpour asks of the other sections."""

from disttrain.job.finding import Path, Severity
from disttrain.job.rule import Rule, for_strategy
from disttrain.job.spec import Spec
from disttrain.job.strategies.downpour import Downpour

_DOWNPOUR: Path = ("spec", "strategy", "downpour")


def _pushes_keep_the_rate(_: Spec, found: Downpour) -> str | None:
    return None if found.push_every == 1 else found.shard_rule.effect_of_sums(found.push_every)


def _several_begin_gently(spec: Spec, found: Downpour) -> str | None:
    replicas = spec.replicas.count
    if replicas == 1 or found.warm_start is not None:
        return None
    return found.shard_rule.hasty_beginning(replicas)


def _is_not_recorded(spec: Spec, found: Downpour) -> str | None:
    if spec.record and found.staleness.maximum is not None:
        return (
            "must be false with staleness.maximum: a replay does not follow pushes that were "
            "refused and samples that went back"
        )
    if spec.record and found.staleness.compensation is not None:
        return (
            "must be false with a compensation of delays: a replay does not follow what is pushed "
            "beside gradients"
        )
    return None


def _pushes_are_longer(_: Spec, found: Downpour) -> str | None:
    if found.staleness.compensation is None:
        return None
    return "makes pushes twice as long: the square of each gradient times the parameters goes along"


def _most_is_usual(spec: Spec, found: Downpour) -> str | None:
    most, usual = found.staleness.most, spec.replicas.count * found.pushes_between_fetches
    least = usual - 1 if found.staleness.waits else usual
    if most is None or most >= least:
        return None
    if found.staleness.waits:
        return (
            f"is {most} updates, and {spec.replicas.count} replicas that wait for one another push "
            f"gradients that are up to {least} updates old: some would be refused all the same; "
            f"take {least} updates or more"
        )
    return (
        f"refuses gradients that are more than {most} updates old, and those of "
        f"{spec.replicas.count} replicas of equal speed are about {usual}: most would be computed "
        "in vain; take a larger number, fewer replicas or fetchEvery: 1"
    )


def _each_push_has_its_fetch(_: Spec, found: Downpour) -> str | None:
    if not found.staleness.waits:
        return None
    if found.max_in_flight > 0:
        return (
            "wait needs maxInFlight: 0, since who computes ahead may push several gradients of "
            f"what was fetched once, got {found.max_in_flight}; set it to 0, or take reject"
        )
    if found.fetch_every > 1:
        return (
            "wait needs fetchEvery: 1, since shards know of a gradient by the fetch before it, got "
            f"{found.fetch_every}; set it to 1, or take reject"
        )
    return None


def _scaled_rate_helps(_: Spec, found: Downpour) -> str | None:
    rule = found.optimizer.rule
    if found.staleness.scale_rate is None or not rule.adapts:
        return None
    return (
        f"divides the rate of {rule.name}, which adapts the size of its steps by itself: with "
        "adagrad and 4 replicas that took 4 times as long as without; take it for sgd or momentum, "
        "or leave it out"
    )


RULES = (
    Rule(
        "With `staleness.maximum.policy: wait`, `maxInFlight` is 0 and `fetchEvery` is 1.",
        (*_DOWNPOUR, "staleness", "maximum", "policy"),
        (_DOWNPOUR,),
        for_strategy(Downpour, _each_push_has_its_fetch),
    ),
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
    Rule(
        "A run with `staleness.maximum` or a compensation of delays is not recorded.",
        ("spec", "record"),
        ((*_DOWNPOUR, "staleness"),),
        for_strategy(Downpour, _is_not_recorded),
    ),
    Rule(
        "Compensation of delays makes pushes twice as long.",
        (*_DOWNPOUR, "staleness"),
        (),
        for_strategy(Downpour, _pushes_are_longer),
        Severity.WARNING,
    ),
    Rule(
        "`staleness.maximum` is not below what replicas of equal speed cause.",
        (*_DOWNPOUR, "staleness"),
        (_DOWNPOUR, ("spec", "replicas", "count")),
        for_strategy(Downpour, _most_is_usual),
        Severity.WARNING,
    ),
    Rule(
        "`staleness.scaleRate` is of use to rules that do not adapt their steps, as sgd.",
        (*_DOWNPOUR, "staleness"),
        ((*_DOWNPOUR, "optimizer"),),
        for_strategy(Downpour, _scaled_rate_helps),
        Severity.WARNING,
    ),
)
