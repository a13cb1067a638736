"""Sandblaster as a manifest describes it: batch optimisation over sharded vectors.

Its methods minimise the loss over a whole batch (DistBelief 4.2).
"""

from typing import Annotated, ClassVar, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from disttrain.job.length import Extent
from disttrain.job.section import MOST, Choice, Count, NotNegative, Section, refused
from disttrain.job.strategies.downpour import Downpour, Optimizer, WarmStart
from disttrain.job.strategy_kind import Exchanges, FirstStage, Precision, StrategyKind
from disttrain.job.update_rules.sgd import Sgd


class StrongWolfe(Section):
    """Steps along which the loss falls and its slope becomes flat (1e-4 and 0.9)."""


class Armijo(Section):
    """Steps along which the loss falls; the first that does is taken."""


class LineSearch(Choice[StrongWolfe | Armijo]):
    """Exactly one rule for the length of a step."""

    strong_wolfe: StrongWolfe | None = None
    """By loss and slope, with cubic interpolation."""

    armijo: Armijo | None = None
    """By the loss alone: for losses that are noisy."""


class BatchRule(Section):
    """What all methods take."""

    name: ClassVar[str]
    # In checkpoints: it stays, whatever the class is called.

    gradient_tolerance: NotNegative = 1e-5
    """The method has converged when no element of the gradient is larger than this."""

    change_tolerance: NotNegative = 1e-9
    """The method has converged when three iterations in a row (five, if a batch is a part of the
    data) each change the loss by no more than this times the loss, or times 1 if that is more."""

    line_search: LineSearch | None = None
    """How long the steps are. null: strongWolfe if the batch is all data, else armijo."""


class Lbfgs(BatchRule):
    """Limited-memory BFGS: curvature from the last few steps, which the shards keep."""

    name = "lbfgs"

    history: Annotated[int, Field(ge=1, le=100)] = 10
    """Steps that are remembered; each takes two vectors of the parameters' length."""


class ConjugateGradient(BatchRule):
    """Nonlinear conjugate gradients, Polak and Ribiere's."""

    name = "conjugategradient"


class GradientDescent(BatchRule):
    """Against the gradient, with a line search."""

    name = "gradientdescent"


class BatchOptimizer(Choice[Lbfgs | ConjugateGradient | GradientDescent]):
    """Exactly one method."""

    lbfgs: Lbfgs | None = None
    """L-BFGS; DistBelief's choice for Sandblaster."""

    conjugate_gradient: ConjugateGradient | None = None
    """Nonlinear conjugate gradients."""

    gradient_descent: GradientDescent | None = None
    """Gradient descent with a line search."""


ALL: Final = "all"
"""A batch of everything."""


class BatchWarmStart(FirstStage):
    """Downpour or plain SGD first, as in DistBelief; the method begins where it ends."""

    alternatives = ("downpour", "sgd")

    downpour: Downpour | None = None
    """By all replicas. Exactly one of downpour and sgd is given."""

    sgd: Sgd | None = None
    """By replica 0 alone, each step on the parameters that the step before has left."""

    @property
    def rule(self) -> Downpour:
        """Plain SGD is Downpour of a replica that waits for every answer."""
        if self.downpour is not None:
            return self.downpour
        return Downpour(
            max_in_flight=0,
            optimizer=Optimizer(sgd=self.sgd),
            warm_start=WarmStart(samples=self.samples),
        )

    def problem_in(self, run: Extent) -> str | None:
        if self.downpour is not None:
            problem = self.downpour.problem_in(run)
            return problem and f"warmStart.downpour.{problem}"
        problem = self.rule.optimizer.rule.problem_in(run)
        return problem and f"warmStart.{problem}"


def _size(value: object) -> object:
    if value == ALL or (type(value) is int and 1 <= value <= MOST):
        return value
    seen = str(value)[:60]
    raise refused(f"must be all or a whole number of at least 1 and at most {MOST}, got {seen}")


BatchSize = Annotated[
    int | str,
    BeforeValidator(_size),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": ALL, "type": "string"},
                {"minimum": 1, "maximum": MOST, "type": "integer"},
            ]
        }
    ),
]
"""`all` or a number of samples."""


class BackupTasks(Section):
    """Copies of work that a slow replica has begun; the first result counts."""

    enabled: bool = True
    """Whether there are copies."""

    start_when_remaining: Count = 8
    """Groups of portions without a result from which on idle replicas get copies."""


class Sandblaster(StrategyKind):
    """Sandblaster (DistBelief 4.2): a method for whole batches, on vectors that the shards keep."""

    name = "sandblaster"
    summary = "Batch optimisation, such as L-BFGS, with a parameter server."
    batch_size_field = "spec.strategy.sandblaster.warmStart.batchSize"
    portion_size_field = batch_size_field
    converges = True

    precision: Annotated[Precision, Field(strict=False)] = Precision.FLOAT32
    """Numbers of the model, of the vectors on the shards, and on the wire."""

    batch_size: BatchSize = ALL
    """Samples of a batch. all: those of the training data, in every iteration. A number, rounded
    up to whole groups: other samples in every iteration, a fifth of them shared with the next one
    (multi-batch L-BFGS)."""

    portion_size: Count = 256
    """Samples of a portion: what a replica computes at once."""

    push_every_portions: Count = 4
    """Portions in a group: what is handed out, pushed and counted as a whole."""

    backup_tasks: BackupTasks = BackupTasks()
    """Copies of what slow replicas have begun."""

    optimizer: BatchOptimizer = Field(examples=[{"lbfgs": {"history": 10}}])
    """The method."""

    warm_start: BatchWarmStart | None = None
    """Asynchronous or plain SGD first. null: the method begins with the initial parameters."""

    @property
    def update_rule(self) -> str:
        return self.optimizer.rule.name

    @property
    def first_stage(self) -> FirstStage | None:
        return self.warm_start

    @property
    def computes_in(self) -> Precision:
        return self.precision

    @property
    def exchanges(self) -> Exchanges:
        """At most one fetch for each push: a replica may have several groups of one batch."""
        groups = 1 / self.push_every_portions
        return Exchanges(pushes=groups, fetches=groups)

    def samples_per_step(self, batch_size: int | None) -> int:
        del batch_size
        return self.portion_size

    @property
    def group_samples(self) -> int:
        return self.portion_size * self.push_every_portions

    @property
    def groups_of_a_batch(self) -> int | None:
        """Groups of portions that a batch makes; None: all that the data makes."""
        if isinstance(self.batch_size, str):
            return None
        return -(-self.batch_size // self.group_samples)


def lack_of_groups(groups: int, replicas: int) -> str | None:
    """What becomes of a batch with fewer groups than replicas; None: it has enough.

    Such a job works. No remedy is said: who asks knows which ones there are.
    """
    if groups >= replicas:
        return None
    return (
        f"makes {groups} groups of portions for {replicas} replicas, so that {replicas - groups} "
        "of them have nothing to do but copies"
    )
