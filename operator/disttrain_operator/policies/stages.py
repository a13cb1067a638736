"""How much of a job shall run: all, nothing, or less and less on the way to nothing."""

from enum import Enum

from disttrain.job.spec import Spec
from disttrain_operator.manifests.context import Scale
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import JobRecord, Outcome
from disttrain_operator.policies.outcome import coordinator_job, coordinators


class Stage(Enum):
    """What a job is on the way to."""

    RUN = "run"
    """Everything runs."""
    STOP_COORDINATOR = "stop coordinator"
    """The coordinator ends first: its checkpoint needs the shards."""
    STOP_ALL = "stop all"
    """Nothing runs."""
    ENDED = "ended"
    """The coordinator has decided; its pod stays for its log, nothing else does."""


def decide(job: JobRecord, spec: Spec, observed: Observed, outcome: Outcome | None) -> Stage:
    if outcome is not None and not outcome.by_operator:
        return Stage.ENDED
    if outcome is None and not spec.suspend:
        return Stage.RUN
    return Stage.STOP_COORDINATOR if _coordinator_is_there(job, observed) else Stage.STOP_ALL


def scale(stage: Stage, spec: Spec) -> Scale:
    if stage is Stage.RUN:
        return Scale(
            shards=spec.shards,
            replicas=spec.replicas.count,
            processes=spec.replicas.processes,
            coordinator=True,
        )
    if stage is Stage.STOP_COORDINATOR:
        return Scale(shards=None, replicas=None, coordinator=False)
    return Scale(shards=0, replicas=0, coordinator=None if stage is Stage.ENDED else False)


def _coordinator_is_there(job: JobRecord, observed: Observed) -> bool:
    keeper = coordinator_job(job, observed)
    if keeper is not None and (keeper.wanted or keeper.remaining) and keeper.ended is None:
        return True
    return any(not pod.over for pod in coordinators(job, observed))
