"""The manifests of the jobs that are simulated."""

from enum import StrEnum

from builders.jobs import a_batch_job, a_job
from disttrain.job.spec import DistTrainJob
from simulation import batch

WARM_SAMPLES = 44
"""Of a warm start: a pass over the data, and more than half of another one."""
WARM_RATE = 2.0**-7
"""Each update is an exact number."""
_METHOD = "spec.strategy.sandblaster"


class Kind(StrEnum):
    """What the job does."""

    DOWNPOUR = "downpour"
    LOCAL_STEPS = "local steps"
    QUORUM = "quorum"
    """The same, and shards merge what two replicas have pushed."""
    FRAGMENTS = "fragments"
    """The same, and each push is of half of the model."""
    BATCHES = "batches"
    """A method for all data at once."""
    SMALL_BATCHES = "small batches"
    AFTER_DOWNPOUR = "after downpour"
    """The same as `BATCHES`, with a warm start by all replicas."""
    AFTER_SGD = "after sgd"
    """With one by a single replica."""

    @property
    def is_a_batch_method(self) -> bool:
        return self not in _STRATEGIES

    @property
    def has_warm_start(self) -> bool:
        return self in {Kind.AFTER_DOWNPOUR, Kind.AFTER_SGD}


_LOCAL_STEPS = "steps: 4, outer: {average: {}}, optimizer: {name: SGD, arguments: {lr: 1}}"
_STRATEGIES = {
    Kind.DOWNPOUR: "{downpour: {optimizer: {sgd: {learningRate: 1}}}}",
    Kind.LOCAL_STEPS: f"{{localSteps: {{{_LOCAL_STEPS}}}}}",
    Kind.QUORUM: f"{{localSteps: {{{_LOCAL_STEPS}}}}}",
    Kind.FRAGMENTS: f"{{localSteps: {{fragments: 2, {_LOCAL_STEPS}}}}}",
}


def of_pushes(kind: Kind, *more: str, target: bool) -> DistTrainJob:
    """Which ends after its epochs or, with a target, when a measure has reached it."""
    found = [
        f"spec.strategy={_STRATEGIES[kind]}",
        "spec.batchSize=4",
        "spec.portionSize=8",
        f"spec.stop.epochs={epochs(target=target)}",
        "spec.checkpoint.everySeconds=3",
        "spec.record=true",
        f"spec.evaluation.everySeconds={2 if target else 5}",
    ]
    if target:
        found.append("spec.stop.targetMetric.name=accuracy")
        found.append("spec.stop.targetMetric.atLeast=0.7")
    return a_job(*found, *more)


def epochs(*, target: bool) -> int:
    return 3 if target else 2


def of_a_method(kind: Kind, *more: str) -> DistTrainJob:
    """Which ends when it has converged."""
    found = [
        f"{_METHOD}.precision=float64",
        f"{_METHOD}.portionSize={batch.PORTION}",
        f"{_METHOD}.pushEveryPortions={batch.GROUP}",
        f"{_METHOD}.backupTasks.startWhenRemaining=3",
        f"{_METHOD}.optimizer.lbfgs.history=2",
        f"{_METHOD}.optimizer.lbfgs.gradientTolerance=0",
        f"{_METHOD}.optimizer.lbfgs.changeTolerance=1e-3",
        "spec.stop.iterations=1000",
        "spec.checkpoint.everySeconds=3",
        "spec.evaluation.everySeconds=3",
    ]
    if kind is Kind.SMALL_BATCHES:
        found.append(f"{_METHOD}.batchSize=16")
        found.append(f"{_METHOD}.optimizer.lbfgs.changeTolerance=0.8")
    if kind.has_warm_start:
        downpour = ".downpour.optimizer" if kind is Kind.AFTER_DOWNPOUR else ""
        found.append(f"{_METHOD}.warmStart.samples={WARM_SAMPLES}")
        found.append(f"{_METHOD}.warmStart.batchSize=4")
        found.append(f"{_METHOD}.warmStart{downpour}.sgd.learningRate={WARM_RATE}")
    return a_batch_job(*found, *more)


def of_size(replicas: int, shards: int) -> list[str]:
    """What all jobs have, whatever they do."""
    return [
        f"spec.replicas.count={replicas}",
        f"spec.parameterServer.shards={shards}",
        "spec.coordinator.leaseSeconds=4",
        "spec.coordinator.memberTimeoutSeconds=10",
        "spec.audit=full",
    ]
