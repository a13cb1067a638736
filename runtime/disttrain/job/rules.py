"""Rules between fields of different sections. Pure.

A rule names the paths that it reads, so that it is skipped while one of them is not valid.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from disttrain.job.audit import Audit
from disttrain.job.finding import Finding, Path, Severity
from disttrain.job.spec import DistTrainJob, Spec
from disttrain.job.strategies.downpour import Downpour
from disttrain.job.strategies.sandblaster import Sandblaster, lack_of_groups

LEAST_GROUPS = 3
"""Of a batch that is smaller than the data: two are shared with its neighbours."""

Check = Callable[[Spec], str | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: what is wrong with a spec, if anything, and where to say so."""

    statement: str
    """The rule as the reference page says it."""
    path: Path
    """Where the finding is shown; the first path that is read."""
    also_reads: tuple[Path, ...]
    """The other paths that the check depends on."""
    check: Check
    """Returns the message, or None if all is well."""
    severity: Severity = Severity.ERROR
    """Whether a job may run that breaks the rule."""
    expression: str = ""
    """The rule in CEL, on the spec, for the API server; empty if it does not look at it."""
    sections: tuple[Path, ...] = ()
    """Sections of which only the presence is read: what is wrong in them does not matter."""

    @property
    def reads(self) -> tuple[Path, ...]:
        return (self.path, *self.also_reads)


def check(job: DistTrainJob) -> list[Finding]:
    """Return what is wrong with a well-typed job, errors and warnings; lines are not known here."""
    return [finding for rule in RULES if (finding := apply(rule, job)) is not None]


def apply(rule: Rule, job: DistTrainJob) -> Finding | None:
    message = rule.check(job.spec)
    if message is None:
        return None
    return Finding(path=rule.path, message=message, severity=rule.severity)


def _batch_size_is_given(spec: Spec) -> str | None:
    if spec.strategy.sandblaster is not None or spec.batch_size is not None:
        return None
    return f"required for {spec.strategy.rule.name}, for example 32"


def _iterations_are_sandblasters(spec: Spec) -> str | None:
    if spec.strategy.sandblaster is not None or spec.stop.iterations is None:
        return None
    return f"is for sandblaster, got {spec.stop.iterations}; with downpour set spec.stop.steps"


def _batch_has_groups(spec: Spec) -> str | None:
    found: Sandblaster | None = spec.strategy.sandblaster
    if found is None or isinstance(found.batch_size, str):
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


def _replicas_have_groups(spec: Spec) -> str | None:
    found: Sandblaster | None = spec.strategy.sandblaster
    groups = None if found is None else found.groups_of_a_batch
    lack = None if groups is None else lack_of_groups(groups, spec.replicas.count)
    return lack and f"{lack}; take smaller portions, or fewer to a group"


def _small_batches_are_lbfgs(spec: Spec) -> str | None:
    found: Sandblaster | None = spec.strategy.sandblaster
    if found is None or isinstance(found.batch_size, str) or found.optimizer.lbfgs is not None:
        return None
    return f"must be all for every optimizer but lbfgs, got {found.batch_size}"


def _warm_start_is_left_behind(spec: Spec) -> str | None:
    found, samples = spec.strategy.sandblaster, spec.stop.samples
    if found is None or found.warm_start is None or samples is None:
        return None
    if samples > found.warm_start.samples:
        return None
    return (
        f"must be more than strategy.sandblaster.warmStart.samples ({found.warm_start.samples}), "
        f"else the method never begins, got {samples}"
    )


def _downpour_is_recorded(spec: Spec) -> str | None:
    if spec.strategy.sandblaster is None or not spec.record:
        return None
    return "must be false with sandblaster: the same manifest gives the same bits without a record"


def _records_are_kept(spec: Spec) -> str | None:
    if not spec.record or spec.audit in {None, Audit.FULL}:
        return None
    return (
        f"must be full, or left out, with record: true, got {spec.audit}: a replay needs every "
        "record; or set record: false"
    )


def _portion_is_whole_batches(spec: Spec) -> str | None:
    batch = spec.batch_size
    if spec.portion_size is None or batch is None or spec.portion_size % batch == 0:
        return None
    return f"must be a multiple of batchSize ({batch}), got {spec.portion_size}"


def _lease_outlives_heartbeats(spec: Spec) -> str | None:
    lease, heartbeat = spec.coordinator.lease_seconds, spec.coordinator.heartbeat_seconds
    if lease > 2 * heartbeat:
        return None
    return f"must be more than twice heartbeatSeconds ({heartbeat:g}), got {lease:g}"


def _member_outlives_lease(spec: Spec) -> str | None:
    timeout, lease = spec.coordinator.member_timeout_seconds, spec.coordinator.lease_seconds
    if timeout > lease:
        return None
    return f"must be more than leaseSeconds ({lease:g}), got {timeout:g}"


def _target_is_measured(spec: Spec) -> str | None:
    evaluation = spec.evaluation
    if spec.stop.target_metric is None:
        return None
    if evaluation and (evaluation.every_epochs or evaluation.every_seconds):
        return None
    return "needs an evaluation during training: set spec.evaluation.everyEpochs or everySeconds"


def _target_may_never_be_met(spec: Spec) -> str | None:
    stop = spec.stop
    if stop.target_metric is None or spec.strategy.sandblaster is not None:
        return None
    if stop.epochs or stop.steps or stop.samples or stop.seconds:
        return None
    return "is the only condition, so the job may never end; add epochs, steps, samples or seconds"


def _pushes_keep_the_rate(spec: Spec) -> str | None:
    found: Downpour | None = spec.strategy.downpour
    if found is None or found.push_every == 1:
        return None
    return found.optimizer.rule.effect_of_sums(found.push_every)


def _several_begin_gently(spec: Spec) -> str | None:
    found: Downpour | None = spec.strategy.downpour
    replicas = spec.replicas.count
    if found is None or replicas == 1 or found.warm_start is not None:
        return None
    return found.optimizer.rule.hasty_beginning(replicas)


def _checkpoint_is_used(spec: Spec) -> str | None:
    given = "checkpoint" in spec.model_fields_set
    if spec.parameter_server.durability != "none" or not given:
        return None
    return "is none, so a lost shard fails the job although checkpoints are written"


_STRATEGY: Path = ("spec", "strategy")
_STRATEGIES: tuple[Path, ...] = ((*_STRATEGY, "downpour"), (*_STRATEGY, "sandblaster"))
_SANDBLASTER_BATCH: Path = (*_STRATEGY, "sandblaster", "batchSize")
_BATCH_SIZE: Path = ("spec", "batchSize")
_PORTION_SIZE: Path = ("spec", "portionSize")
_COORDINATOR: Path = ("spec", "coordinator")
_LEASE: Path = (*_COORDINATOR, "leaseSeconds")
_STOP: Path = ("spec", "stop")
_TARGET: Path = (*_STOP, "targetMetric")
_DURABILITY: Path = ("spec", "parameterServer", "durability")


def _of_downpour(statement: str, path: Path, attribute: str, instead: str) -> Rule:
    """Of a field in the place of which sandblaster has another one."""
    given = attrgetter(attribute)

    def check(spec: Spec) -> str | None:
        if spec.strategy.sandblaster is None or given(spec) is None:
            return None
        return f"is for downpour, got {given(spec)}; with sandblaster set spec.{instead}"

    expression = f"!has(self.strategy.sandblaster) || !has(self.{'.'.join(map(str, path[1:]))})"
    return Rule(statement, path, (), check, expression=expression, sections=_STRATEGIES)


RULES = (
    Rule(
        "Downpour needs `spec.batchSize`.",
        _BATCH_SIZE,
        (),
        _batch_size_is_given,
        expression="!has(self.strategy.downpour) || has(self.batchSize)",
        sections=_STRATEGIES,
    ),
    _of_downpour(
        "Sandblaster has no `spec.batchSize`, but a `portionSize` of its own.",
        _BATCH_SIZE,
        "batch_size",
        "strategy.sandblaster.portionSize",
    ),
    _of_downpour(
        "Sandblaster has no `spec.portionSize`, but one of its own.",
        _PORTION_SIZE,
        "portion_size",
        "strategy.sandblaster.portionSize",
    ),
    _of_downpour(
        "`spec.stop.steps` is for downpour.", (*_STOP, "steps"), "stop.steps", "stop.iterations"
    ),
    Rule(
        "`spec.stop.iterations` is for sandblaster.",
        (*_STOP, "iterations"),
        (),
        _iterations_are_sandblasters,
        expression="has(self.strategy.sandblaster) || !has(self.stop.iterations)",
        sections=_STRATEGIES,
    ),
    Rule(
        "`spec.stop.samples` is more than those of sandblaster's `warmStart`, which it counts.",
        (*_STOP, "samples"),
        ((*_STRATEGY, "sandblaster", "warmStart"),),
        _warm_start_is_left_behind,
        expression="!has(self.strategy.sandblaster) || "
        "!has(self.strategy.sandblaster.warmStart) || !has(self.stop.samples) || "
        "self.stop.samples > self.strategy.sandblaster.warmStart.samples",
    ),
    Rule(
        "Sandblaster is not recorded: the same manifest gives the same bits.",
        ("spec", "record"),
        (),
        _downpour_is_recorded,
        expression="!has(self.strategy.sandblaster) || !self.record",
        sections=_STRATEGIES,
    ),
    Rule(
        "With `spec.record` every record is kept: `spec.audit` is full, or left out.",
        ("spec", "audit"),
        (("spec", "record"),),
        _records_are_kept,
        expression="!self.record || !has(self.audit) || self.audit == 'full'",
    ),
    Rule(
        "A `batchSize` of sandblaster that is a number makes at least three groups of portions.",
        _SANDBLASTER_BATCH,
        ((*_STRATEGY, "sandblaster"),),
        _batch_has_groups,
    ),
    Rule(
        "A `batchSize` of sandblaster that is a number is for L-BFGS.",
        _SANDBLASTER_BATCH,
        ((*_STRATEGY, "sandblaster", "optimizer"),),
        _small_batches_are_lbfgs,
    ),
    Rule(
        "`spec.portionSize` is a multiple of `spec.batchSize`.",
        _PORTION_SIZE,
        (_BATCH_SIZE,),
        _portion_is_whole_batches,
        expression="!has(self.portionSize) || !has(self.batchSize) || "
        "self.portionSize % self.batchSize == 0",
    ),
    Rule(
        "`leaseSeconds` is more than twice `heartbeatSeconds`, so that one lost sign of life "
        "takes no work away.",
        _LEASE,
        ((*_COORDINATOR, "heartbeatSeconds"),),
        _lease_outlives_heartbeats,
        expression="self.coordinator.leaseSeconds > 2.0 * self.coordinator.heartbeatSeconds",
    ),
    Rule(
        "`memberTimeoutSeconds` is more than `leaseSeconds`: work is given to others before its "
        "owner is declared dead.",
        (*_COORDINATOR, "memberTimeoutSeconds"),
        (_LEASE,),
        _member_outlives_lease,
        expression="self.coordinator.memberTimeoutSeconds > self.coordinator.leaseSeconds",
    ),
    Rule(
        "`spec.stop.targetMetric` needs an evaluation during training.",
        _TARGET,
        (("spec", "evaluation"),),
        _target_is_measured,
        expression="!has(self.stop.targetMetric) || (has(self.evaluation) && "
        "(has(self.evaluation.everyEpochs) || has(self.evaluation.everySeconds)))",
    ),
    Rule(
        "`spec.stop.targetMetric` alone may never be met.",
        _TARGET,
        (_STOP,),
        _target_may_never_be_met,
        Severity.WARNING,
    ),
    Rule(
        "A `batchSize` of sandblaster that makes fewer groups of portions than there are replicas "
        "leaves some without work. Whether `all` does is said when the data is known.",
        _SANDBLASTER_BATCH,
        ((*_STRATEGY, "sandblaster"), ("spec", "replicas", "count")),
        _replicas_have_groups,
        Severity.WARNING,
    ),
    Rule(
        "`pushEvery` above 1 changes what a `learningRate` means, but of rules as plain as sgd.",
        (*_STRATEGY, "downpour", "pushEvery"),
        ((*_STRATEGY, "downpour"),),
        _pushes_keep_the_rate,
        Severity.WARNING,
    ),
    Rule(
        "Adagrad of several replicas begins with an `initialAccumulator`, a rate that grows or a "
        "`warmStart`.",
        (*_STRATEGY, "downpour", "optimizer", "adagrad"),
        ((*_STRATEGY, "downpour"), ("spec", "replicas", "count")),
        _several_begin_gently,
        Severity.WARNING,
    ),
    Rule(
        "`durability: none` beside a `spec.checkpoint`: the checkpoints do not save a job from a "
        "lost shard.",
        _DURABILITY,
        (("spec", "checkpoint"),),
        _checkpoint_is_used,
        Severity.WARNING,
    ),
)
