"""What local steps ask of the other sections."""

import math

from pydantic.alias_generators import to_camel

from disttrain.job import length
from disttrain.job.finding import Path, Severity
from disttrain.job.merged import MOST_REPLICAS
from disttrain.job.outer_rule import OuterMomentum
from disttrain.job.rule import Rule, for_strategy
from disttrain.job.spec import Spec
from disttrain.job.strategies.local_steps import LocalSteps
from disttrain.job.strategy_kind import Numbers, Precision, PushedNumbers
from disttrain.job.torch_optimizers import OptimizerName

_LOCAL_STEPS: Path = ("spec", "strategy", "localSteps")
_STEPS: Path = (*_LOCAL_STEPS, "steps")
_OUTER: Path = (*_LOCAL_STEPS, "outer")
_MAXIMUM_AGE: Path = (*_LOCAL_STEPS, "maximumAge")
_MAXIMUM_NORM: Path = (*_LOCAL_STEPS, "maximumNorm")
_QUORUM: Path = (*_LOCAL_STEPS, "quorum")
_FRAGMENTS: Path = (*_LOCAL_STEPS, "fragments")
_PUSH_AS: Path = (*_LOCAL_STEPS, "pushAs")
_READS: tuple[Path, ...] = (
    _LOCAL_STEPS,
    ("spec", "stop"),
    ("spec", "batchSize"),
    ("spec", "replicas", "count"),
)
_BY_MATRICES = frozenset({OptimizerName.ADAFACTOR, OptimizerName.MUON})
_FEW = 10
"""Pushes of each replica: that many meetings bring several of them little."""
_FEW_FOR_A_VELOCITY = 50
"""It remembers ten pushes by default, and has to go up and down."""


def _pushes(spec: Spec, found: LocalSteps) -> float | None:
    """Of each replica in the run; None: the manifest alone does not tell."""
    batch = spec.batch_size or 1
    samples = length.extent(spec.stop, batch, None).samples
    return None if samples is None else samples / (batch * found.steps * spec.replicas.count)


def _replicas_meet(spec: Spec, found: LocalSteps) -> str | None:
    pushes = _pushes(spec, found)
    if pushes is None or pushes >= _FEW or spec.replicas.count == 1 or found.seconds is not None:
        return None
    return (
        f"lets each of {spec.replicas.count} replicas push {pushes:.2g} times in the run, so that "
        "they train almost alone; take fewer steps"
    )


def _velocity_has_time(spec: Spec, found: LocalSteps) -> str | None:
    pushes = _pushes(spec, found)
    has_velocity = isinstance(found.outer.rule, OuterMomentum)
    if pushes is None or pushes >= _FEW_FOR_A_VELOCITY or not has_velocity:
        return None
    return (
        f"has a velocity, which harms short runs: each replica pushes {pushes:.2g} times; take "
        "average, or fewer steps"
    )


def _records_count_steps(spec: Spec, found: LocalSteps) -> str | None:
    if not spec.record or found.seconds is None:
        return None
    return f"must be null with record: true, since a replay knows no seconds, got {found.seconds:g}"


def _records_have_no_refusals(spec: Spec, found: LocalSteps) -> str | None:
    if not spec.record or found.maximum_age is None:
        return None
    return (
        "must be null with record: true, since a replay does not follow pushes that were refused, "
        f"got {found.maximum_age}"
    )


def _norms_are_of_differences(_: Spec, found: LocalSteps) -> str | None:
    if found.maximum_norm is None or not found.outer.rule.sends_parameters:
        return None
    return (
        f"must be null with outer.{to_camel(found.outer.rule.name)}, which pushes parameters, not "
        f"differences, got {found.maximum_norm:g}; take outer.average"
    )


def _pushes_what_may_be_rounded(_: Spec, found: LocalSteps) -> str | None:
    return _rounded(found, found.push_as)


def _fetches_what_may_be_rounded(_: Spec, found: LocalSteps) -> str | None:
    return _rounded(found, found.fetch_as)


def _rounded(found: LocalSteps, numbers: PushedNumbers | Numbers) -> str | None:
    """Parameters that are pushed would bring what rounding did to the shards."""
    if numbers == Numbers.FLOAT32:
        return None
    if found.precision is Precision.FLOAT64:
        return (
            f"must be float32 with precision: float64, of which {numbers} would keep few "
            "digits; leave it out"
        )
    if found.outer.rule.sends_parameters:
        return (
            f"must be float32 with outer.{to_camel(found.outer.rule.name)}, which pushes "
            f"parameters, not differences, got {numbers}; take outer.average"
        )
    return None


def _quorum_can_meet(spec: Spec, found: LocalSteps) -> str | None:
    count = spec.replicas.count
    if found.quorum is None:
        return None
    if found.quorum > count:
        return f"must be at most replicas.count, which is {count}, got {found.quorum}; take {count}"
    if count > MOST_REPLICAS:
        return (
            f"must be null with more than {MOST_REPLICAS} replicas, each of which has a vector on "
            f"every shard, got {found.quorum} with {count} replicas; leave it out"
        )
    return None


def _quorum_has_a_mean(_: Spec, found: LocalSteps) -> str | None:
    rule = found.outer.rule
    if found.quorum is None:
        return None
    name = to_camel(rule.name)
    if not rule.merges:
        return (
            f"must be average or nesterov with quorum: {found.quorum}, since a mean of several "
            f"replicas is applied, got {name}; take nesterov"
        )
    if rule.full_age is not None:
        return (
            f"must have no fullAge with quorum: {found.quorum}, since a mean of several replicas "
            f"has no age, got {name}.fullAge: {rule.full_age}; leave it out"
        )
    return None


def _grace_is_after_a_quorum(_: Spec, found: LocalSteps) -> str | None:
    if found.quorum is not None or not found.grace_seconds:
        return None
    return (
        f"must be null without a quorum, got {found.grace_seconds:g}; leave it out, or set quorum "
        "too"
    )


def _fragments_take_turns(_: Spec, found: LocalSteps) -> str | None:
    steps, fragments = found.steps, found.fragments
    if not steps % fragments:
        return None
    nearest = fragments * max(1, round(steps / fragments))
    return (
        f"must divide steps, which is {steps}, since one fragment is pushed after every steps / "
        f"fragments of them, got {fragments}; take steps: {nearest}, or fragments: "
        f"{math.gcd(steps, fragments)}"
    )


def _fragments_have_no_age(_: Spec, found: LocalSteps) -> str | None:
    if found.fragments == 1:
        return None
    rule = found.outer.rule
    field, value = "maximumAge", found.maximum_age
    if rule.full_age is not None:
        field, value = f"outer.{to_camel(rule.name)}.fullAge", rule.full_age
    if value is None:
        return None
    return (
        f"must be 1 with {field}, since the age of a push counts the pushes of all fragments, got "
        f"{found.fragments} with {field}: {value}; leave one of them out"
    )


def _equals_are_young_enough(spec: Spec, found: LocalSteps) -> str | None:
    usual = spec.replicas.count - 1
    if found.maximum_age is None or found.maximum_age > usual:
        return None
    return (
        f"is no more than the age of {usual} at which {spec.replicas.count} replicas of equal "
        f"speed push, so that much work is done twice, got {found.maximum_age}; take "
        f"{4 * usual}, or outer.{to_camel(found.outer.rule.name)}.fullAge"
    )


def _optimizer_steps_by_elements(spec: Spec, found: LocalSteps) -> str | None:
    name, replicas = found.optimizer.name, spec.replicas
    if replicas.parts == 1 or name not in _BY_MATRICES:
        return None
    return (
        f"is {name}, whose steps depend on whole matrices, and each of {replicas.parts_said} has "
        "a part of them; take AdamW, or set that to 1"
    )


RULES = (
    Rule(
        "Partitions, and ranks with `fsdp2`, step with an optimizer that looks at single elements.",
        (*_LOCAL_STEPS, "optimizer", "name"),
        (("spec", "replicas"),),
        for_strategy(LocalSteps, _optimizer_steps_by_elements),
    ),
    Rule(
        "`quorum` is at most the number of replicas, of which there are at most 64.",
        _QUORUM,
        (("spec", "replicas", "count"),),
        for_strategy(LocalSteps, _quorum_can_meet),
    ),
    Rule(
        "A quorum goes with `average` and `nesterov`, without `fullAge`.",
        _OUTER,
        (_LOCAL_STEPS,),
        for_strategy(LocalSteps, _quorum_has_a_mean),
    ),
    Rule(
        "`fragments` divides `steps`.",
        _FRAGMENTS,
        (_STEPS,),
        for_strategy(LocalSteps, _fragments_take_turns),
    ),
    Rule(
        "`fragments` go without `maximumAge` and `fullAge`.",
        _FRAGMENTS,
        (_LOCAL_STEPS,),
        for_strategy(LocalSteps, _fragments_have_no_age),
    ),
    Rule(
        "`graceSeconds` is the time after a quorum.",
        (*_LOCAL_STEPS, "graceSeconds"),
        (_LOCAL_STEPS,),
        for_strategy(LocalSteps, _grace_is_after_a_quorum),
    ),
    Rule(
        "`pushAs` below float32 is for differences of single precision.",
        _PUSH_AS,
        (_LOCAL_STEPS,),
        for_strategy(LocalSteps, _pushes_what_may_be_rounded),
    ),
    Rule(
        "`fetchAs` below float32 is for single precision, and rules that take differences.",
        (*_LOCAL_STEPS, "fetchAs"),
        (_LOCAL_STEPS,),
        for_strategy(LocalSteps, _fetches_what_may_be_rounded),
    ),
    Rule(
        "`maximumNorm` is for outer rules that take differences.",
        _MAXIMUM_NORM,
        (_LOCAL_STEPS,),
        for_strategy(LocalSteps, _norms_are_of_differences),
    ),
    Rule(
        "With several replicas, `steps` of local steps lets each of them push ten times or more.",
        _STEPS,
        _READS,
        for_strategy(LocalSteps, _replicas_meet),
        Severity.WARNING,
    ),
    Rule(
        "An outer rule with a velocity is for runs with fifty pushes of each replica or more.",
        _OUTER,
        _READS,
        for_strategy(LocalSteps, _velocity_has_time),
        Severity.WARNING,
    ),
    Rule(
        "Local steps that are pushed by `seconds` are not recorded.",
        (*_LOCAL_STEPS, "seconds"),
        (("spec", "record"),),
        for_strategy(LocalSteps, _records_count_steps),
    ),
    Rule(
        "A run with `maximumAge` is not recorded.",
        _MAXIMUM_AGE,
        (("spec", "record"),),
        for_strategy(LocalSteps, _records_have_no_refusals),
    ),
    Rule(
        "`maximumAge` is more than the age at which replicas of equal speed push.",
        _MAXIMUM_AGE,
        _READS,
        for_strategy(LocalSteps, _equals_are_young_enough),
        Severity.WARNING,
    ),
)
