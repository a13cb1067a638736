"""Rules that hold with every strategy."""

from pydantic.alias_generators import to_camel

from disttrain.job import defaults, length
from disttrain.job.finding import Path, Severity
from disttrain.job.rule import STRATEGIES, Rule
from disttrain.job.spec import KINDS, Audit, Spec
from disttrain.job.strategy_kind import StrategyKind
from disttrain.job.transport import TransportChoice

_BATCH_SIZE: Path = ("spec", "batchSize")
_PORTION_SIZE: Path = ("spec", "portionSize")
_COORDINATOR: Path = ("spec", "coordinator")
_LEASE: Path = (*_COORDINATOR, "leaseSeconds")
_STOP: Path = ("spec", "stop")
_TARGET: Path = (*_STOP, "targetMetric")

_BY_BATCHES = [
    to_camel(kind.name) for kind in KINDS if kind.batch_size_field == StrategyKind.batch_size_field
]


def _batch_size_is_given(spec: Spec) -> str | None:
    rule = spec.strategy.rule
    if spec.batch_size is not None or rule.batch_size_field != StrategyKind.batch_size_field:
        return None
    return f"required for {to_camel(rule.name)}, for example 32"


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
    return None if spec.stop.target_metric is None else _nothing_is_measured(spec)


def _patience_is_measured(spec: Spec) -> str | None:
    return None if spec.stop.patience is None else _nothing_is_measured(spec)


def _best_is_a_choice(spec: Spec) -> str | None:
    evaluation = spec.evaluation
    if evaluation is None or evaluation.keep_best is None or not _nothing_is_measured(spec):
        return None
    return (
        "keeps a second copy of the exported model, since no other one is evaluated; set "
        "spec.evaluation.everyEpochs or everySeconds"
    )


def _nothing_is_measured(spec: Spec) -> str | None:
    evaluation = spec.evaluation
    if evaluation and (evaluation.every_epochs or evaluation.every_seconds):
        return None
    return "needs an evaluation during training: set spec.evaluation.everyEpochs or everySeconds"


def _target_may_never_be_met(spec: Spec) -> str | None:
    stop = spec.stop
    # This is asked of a manifest with a strategy that is wrong, too: then there may be none.
    if stop.target_metric is None or any(kind.converges for kind in spec.strategy.given().values()):
        return None
    if stop.epochs or stop.steps or stop.samples or stop.seconds or stop.patience:
        return None
    return "is the only condition, so the job may never end; add epochs, steps, samples or seconds"


def _schedule_fits(spec: Spec) -> str | None:
    """As far as it is known without the data; of a job's every stage."""
    for stage in defaults.stages(spec):
        for run in length.without_data(stage.stop, stage.batch_size or 1):
            if (problem := defaults.problem_in(spec, stage, run)) is not None:
                return problem
    return None


def _checkpoint_is_used(spec: Spec) -> str | None:
    given = "checkpoint" in spec.model_fields_set
    if spec.parameter_server.durability != "none" or not given:
        return None
    return "is none, so a lost shard fails the job although checkpoints are written"


def _transport_is_protected(spec: Spec) -> str | None:
    transport = spec.transport
    if transport.is_encrypted or transport.kind is TransportChoice.SHARED_MEMORY:
        return None
    return (
        "is none, so whoever reaches a TCP port of the job is heard and reads along: on one "
        "machine its every user, on a cluster whom the namespace's NetworkPolicy lets through, "
        "all other jobs of the namespace among them; for networks that encrypt by themselves, "
        "tests and benchmarks"
    )


def _is_measured(field: str) -> str:
    return (
        f"!has(self.stop.{field}) || (has(self.evaluation) && "
        "((has(self.evaluation.everyEpochs) && self.evaluation.everyEpochs > 0) || "
        "has(self.evaluation.everySeconds)))"
    )


RULES = (
    Rule(
        f"`spec.batchSize` is required for {' and '.join(_BY_BATCHES)}.",
        _BATCH_SIZE,
        (),
        _batch_size_is_given,
        expression=" && ".join(
            f"(!has(self.strategy.{name}) || has(self.batchSize))" for name in _BY_BATCHES
        ),
        sections=STRATEGIES,
    ),
    Rule(
        "With `spec.record` every record is kept: `spec.audit` is full, or left out.",
        ("spec", "audit"),
        (("spec", "record"),),
        _records_are_kept,
        expression="!self.record || !has(self.audit) || self.audit == 'full'",
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
        expression=_is_measured("targetMetric"),
    ),
    Rule(
        "`spec.stop.patience` needs an evaluation during training.",
        (*_STOP, "patience"),
        (("spec", "evaluation"),),
        _patience_is_measured,
        expression=_is_measured("patience"),
    ),
    Rule(
        "`spec.evaluation.keepBest` without an evaluation during training keeps a second copy of "
        "the exported model.",
        ("spec", "evaluation", "keepBest"),
        (("spec", "evaluation"),),
        _best_is_a_choice,
        Severity.WARNING,
    ),
    Rule(
        "`spec.stop.targetMetric` alone may never be met.",
        _TARGET,
        (_STOP,),
        _target_may_never_be_met,
        Severity.WARNING,
    ),
    Rule(
        "A schedule fits into the run, and has an end to go by where it goes by the run: its "
        "warm-up and its decay, and what ends the run in `spec.stop`.",
        ("spec", "strategy"),
        (_STOP, _BATCH_SIZE),
        _schedule_fits,
    ),
    Rule(
        "`durability: none` beside a `spec.checkpoint`: the checkpoints do not save a job from a "
        "lost shard.",
        ("spec", "parameterServer", "durability"),
        (("spec", "checkpoint"),),
        _checkpoint_is_used,
        Severity.WARNING,
    ),
    Rule(
        "`encryption: none` leaves a job on a cluster no protection but a NetworkPolicy, and one "
        "over TCP on one machine none.",
        ("spec", "transport", "encryption"),
        (("spec", "transport", "kind"),),
        _transport_is_protected,
        Severity.WARNING,
    ),
)
