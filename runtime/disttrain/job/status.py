"""How a job on Kubernetes is: the status of the custom resource, which two writers share.

The operator owns everything but `COORDINATOR_FIELDS`, and the coordinator owns those. Numbers
that JSON cannot hold become null.
"""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from disttrain.job.names import Role
from disttrain.job.section import WholeNumber
from disttrain.job.status_section import Condition, LogTail, Number, StatusSection, Text, Time

COORDINATOR_FIELDS: Final = (
    "training",
    "data",
    "sandblaster",
    "parameterServer",
    "checkpoint",
)
"""Fields of the status that the coordinator writes, and the operator never."""

MOST_FAILURES: Final = 10
"""Deaths that a status keeps: the latest ones."""

MOST_MEASURES: Final = 50
"""Measures that a status keeps: the first ones."""


class Phase(StrEnum):
    """A word for people who list jobs. Programs read the conditions."""

    PENDING = "Pending"
    """Not all processes that training needs have been there yet."""
    RUNNING = "Running"
    """It trains."""
    SUSPENDED = "Suspended"
    """No process runs, because the manifest says so."""
    COMPLETE = "Complete"
    """It has ended well."""
    FAILED = "Failed"
    """It has ended badly."""


class Restarts(StatusSection):
    """Restarts of processes in the whole job."""

    coordinator: WholeNumber = 0
    """Restarts of the coordinator."""

    shard: WholeNumber = 0
    """Restarts of all shards together."""

    replica: WholeNumber = 0
    """Restarts of all replicas together."""


class Failure(StatusSection):
    """The death of a process; known after its pod is gone, too."""

    time: Time
    """When it ended."""

    role: Role
    """What the process was."""

    pod: Text
    """Name of its pod."""

    exit_code: int | None = None
    """Its exit code, 128 and the number of the signal that killed it. null: it never ran."""

    reason: Text = ""
    """What Kubernetes calls it, such as OOMKilled or Error."""

    log_tail: LogTail = ""
    """The end of what it wrote."""


class ShardStatus(StatusSection):
    """One shard of the parameter server."""

    index: WholeNumber
    """Index of the shard, from 0."""

    version: WholeNumber | None = None
    """Number of updates that it has applied."""

    staleness_p50: Number = None
    """Median staleness of the pushes that it has applied, in updates."""

    staleness_p99: Number = None
    """99th percentile of it."""

    checkpoint_version: WholeNumber | None = None
    """Its version in the latest checkpoint."""

    updates_at_risk: WholeNumber | None = None
    """Updates since then, which its death would lose."""


class ParameterServerStatus(StatusSection):
    """The shards as the coordinator hears them."""

    ready: WholeNumber | None = None
    """Number of shards that serve."""

    updates_at_risk: WholeNumber | None = None
    """Updates of all shards together since the latest checkpoint."""

    shards: Annotated[
        tuple[ShardStatus, ...],
        Field(max_length=1024, json_schema_extra={"x-kubernetes-list-map-keys": ["index"]}),
    ] = ()
    """Each shard."""


class TrainingStatus(StatusSection):
    """How far training is."""

    epoch: Number = None
    """Passes over the training data, with the fraction of the current one."""

    steps: WholeNumber | None = None
    """Steps of all replicas together."""

    samples: WholeNumber | None = None
    """Samples processed by all replicas together."""

    samples_per_second: Number = None
    """Speed of all replicas together, lately."""

    speed: Text | None = None
    """The same in samples per second as people read it, such as `1,051`, for lists of jobs."""

    loss: Number = None
    """Mean loss of the replicas, lately."""

    recent_loss: Text | None = None
    """The same as people read it, such as `0.208`, for lists of jobs."""

    metrics: Annotated[dict[str, Number], Field(max_length=MOST_MEASURES)] = Field(
        default_factory=dict
    )
    """Measures of the latest evaluation by their names."""

    metrics_samples: WholeNumber | None = None
    """Samples that the parameters of that evaluation had seen."""

    measure: Text | None = None
    """One measure as text, such as `accuracy 0.972`: the target's, else the first."""

    warning: Text | None = None
    """What somebody should look at: the latest checkpoint failed, or a measure of the latest
    evaluation is no finite number."""

    staleness_p50: Number = None
    """Median staleness of the pushes, in updates."""

    staleness_p99: Number = None
    """99th percentile of the staleness of the pushes, in updates."""

    prediction_error: Number = None
    """Where the strategy predicts parameters: distance of what was predicted from what came, by the
    distance without a prediction; the median over replicas and shards."""

    progress_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    """How much of the job is done, by the stop condition that will be met first."""

    estimated_remaining_seconds: Number = None
    """Seconds until then at the present speed."""


class DataStatus(StatusSection):
    """What became of the work that was given out."""

    portions_done: WholeNumber | None = None
    """Portions that were processed."""

    portions_requeued: WholeNumber | None = None
    """Portions that were given to another replica because the first one was lost."""

    samples_repeated: WholeNumber | None = None
    """Samples that were processed more than once because of that."""


class SandblasterStatus(StatusSection):
    """How far a batch method is."""

    iteration: WholeNumber | None = None
    """Points that the method has accepted after the first one."""

    evaluation: WholeNumber | None = None
    """Number of the evaluation of loss and gradient over the batch that is under way."""

    evaluations: WholeNumber | None = None
    """Evaluations that are done."""

    objective: Number = None
    """Loss over the batch at the point accepted last."""

    gradient_norm: Number = None
    """The largest absolute value of the gradient's elements there."""

    evaluations_per_iteration: Number = None
    """Evaluations that the method needs on average."""

    stage: Text | None = None
    """What the method waits for, such as computing; warm_start before it begins."""

    groups_done: WholeNumber | None = None
    """Groups of portions that are done in this evaluation."""

    groups: WholeNumber | None = None
    """Groups of portions in the batch."""

    requeued: WholeNumber | None = None
    """Groups that were given to another replica because the first one was lost."""

    copies: WholeNumber | None = None
    """Backup tasks: copies of groups that a slow replica had begun."""

    returns: WholeNumber | None = None
    """How often all went back to a checkpoint because a shard was lost."""

    end: Text | None = None
    """Why the method is done, such as gradient or change."""

    warning: Text | None = None
    """What the manifest had better say otherwise: a batch makes fewer groups than there are
    replicas."""

    warm_start_samples: WholeNumber | None = None
    """Samples of the warm start, before the method begins."""


class CheckpointStatus(StatusSection):
    """The latest complete checkpoint."""

    path: Text
    """Its folder, within the job's folder on the volume."""

    time: Time
    """When it was complete."""

    samples: WholeNumber | None = None
    """Samples that the job had processed."""


class JobStatus(StatusSection):
    """How the job is. Written by the operator and the coordinator; yours to read."""

    observed_generation: WholeNumber | None = None
    """The generation of the spec that the operator has acted on."""

    phase: Phase | None = None
    """A word for people; programs read the conditions."""

    strategy: Text | None = None
    """Name of the strategy, for lists of jobs."""

    shards: WholeNumber | None = None
    """Shards that are wanted, for lists of jobs."""

    conditions: Annotated[
        tuple[Condition, ...],
        Field(max_length=32, json_schema_extra={"x-kubernetes-list-map-keys": ["type"]}),
    ] = ()
    """What is true of the job, each with its reason and what to do."""

    start_time: Time | None = None
    """When the job's objects were made, or made again after a suspension."""

    completion_time: Time | None = None
    """When the job ended well."""

    restarts: Restarts | None = None
    """Restarts of processes in the whole job, by role."""

    replicas: WholeNumber | None = None
    """Pods of replicas that there are; for `kubectl scale` and autoscalers."""

    ready_replicas: WholeNumber | None = None
    """Replicas that have joined."""

    selector: Text | None = None
    """Selects the pods of the replicas; for autoscalers."""

    failures: Annotated[tuple[Failure, ...], Field(max_length=MOST_FAILURES)] = ()
    """The latest deaths of processes, the newest last."""

    parameter_server: ParameterServerStatus | None = None
    """The shards as the coordinator hears them."""

    training: TrainingStatus | None = None
    """How far training is."""

    data: DataStatus | None = None
    """What became of the work that was given out."""

    sandblaster: SandblasterStatus | None = None
    """How far the batch method is, with strategy sandblaster."""

    checkpoint: CheckpointStatus | None = None
    """The latest complete checkpoint."""

    report: Text | None = None
    """Where the summary of an ended job lies, within the volume."""
