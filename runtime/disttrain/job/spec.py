"""The whole manifest: a DistTrainJob, its metadata and its spec."""

import re
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, JsonValue

from disttrain.job import subclasses
from disttrain.job.checkpoint import Checkpoint
from disttrain.job.failure_policy import FailurePolicy
from disttrain.job.roles import Coordinator, ParameterServer, Replicas
from disttrain.job.section import (
    ON_A_CLUSTER,
    Choice,
    Count,
    ObjectName,
    Section,
    WholeNumber,
    one_of,
    refused,
)
from disttrain.job.stop import Evaluation, Stop
from disttrain.job.strategies.downpour import Downpour
from disttrain.job.strategies.local_steps import LocalSteps
from disttrain.job.strategy_kind import StrategyKind
from disttrain.job.transport import Transport, TransportField

KINDS: Final = subclasses.found("disttrain.job.strategies", StrategyKind)


class Strategy(one_of(*((kind.name, kind, kind.summary) for kind in KINDS))):  # type: ignore[misc]  # Its fields are the modules found.
    """Exactly one way for the replicas to work together."""

    @property
    def rule(self) -> StrategyKind:
        chosen: StrategyKind = super().rule
        return chosen

    @property
    def only_downpour(self) -> Downpour:
        """Downpour, for those who serve no other strategy; their processes ask `rule` before."""
        assert isinstance(self.rule, Downpour), "only for jobs of downpour"  # noqa: S101 - for ourselves.
        return self.rule

    @property
    def only_local_steps(self) -> LocalSteps:
        """The same of local steps."""
        assert isinstance(self.rule, LocalSteps), "only for jobs of localSteps"  # noqa: S101 - as above.
        return self.rule


LONGEST_NAME = 40
"""Characters. Kubernetes allows 63 for a pod's name, and the roles append to the job's name."""

NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"

ENTRYPOINT_PATTERN = r"^[^\s:]+:[^\s:.]+$"
"""What can be said about an entrypoint without Python's own rules for identifiers."""

API_VERSION = "disttrain.dev/v1alpha1"
KIND = "DistTrainJob"


def _is_dns_label(name: str) -> str:
    if len(name) <= LONGEST_NAME and re.fullmatch(NAME_PATTERN[1:-1], name):
        return name
    raise refused(
        f"must be at most {LONGEST_NAME} characters a-z, 0-9 and '-', begin with a letter and end "
        f"with a letter or digit, got '{name}'"
    )


class Metadata(Section):
    """What the job is called. Whatever else the API server adds is accepted and not kept."""

    name: Annotated[str, AfterValidator(_is_dns_label)] = Field(examples=["digits"])
    """Name of the job: a DNS label (RFC 1035) of at most 40 characters."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Free texts by which jobs are selected."""

    annotations: dict[str, str] = Field(default_factory=dict)
    """Free texts for tools and people."""

    namespace: str | None = None
    """Namespace of the job on a cluster. null: that of the kubectl context."""

    uid: str | None = None
    """Set by the API server: tells a job from a later one of the same name."""

    generation: WholeNumber | None = Field(default=None, exclude=True)
    """Set by the API server: number of changes of the spec."""

    resource_version: str | None = Field(default=None, exclude=True)
    """Set by the API server: changes with every write."""

    creation_timestamp: str | None = Field(default=None, exclude=True)
    """Set by the API server."""

    deletion_timestamp: str | None = Field(default=None, exclude=True)
    """Set by the API server once the job is being deleted."""

    deletion_grace_period_seconds: WholeNumber | None = Field(default=None, exclude=True)
    """Set by the API server once the job is being deleted."""

    generate_name: str | None = Field(default=None, exclude=True)
    """Beginning of a name that the API server completes; the name itself is required here."""

    self_link: str | None = Field(default=None, exclude=True)
    """Set by old API servers."""

    finalizers: list[JsonValue] | None = Field(default=None, exclude=True)
    """What delays the deletion of the job; DistTrain adds none."""

    owner_references: list[JsonValue] | None = Field(default=None, exclude=True)
    """What the job is deleted with."""

    managed_fields: list[JsonValue] | None = Field(default=None, exclude=True)
    """Set by the API server: who wrote which field."""


def _is_entrypoint(entrypoint: str) -> str:
    module, separator, class_name = entrypoint.partition(":")
    if separator and class_name.isidentifier() and all(map(str.isidentifier, module.split("."))):
        return entrypoint
    raise refused(f"must be 'module:Class', for example digits:Digits, got '{entrypoint}'")


class TaskSource(Choice[str]):
    """Where the code of the task comes from on a cluster."""

    config_map: ObjectName | None = None
    """Name of a ConfigMap in the job's namespace; its keys are the files of the code."""


class FrozenParameters(StrEnum):
    """Who has the parameters without a gradient."""

    SHARED = "shared"
    """Uploaded once, kept by the shards, fetched by each replica, and in every checkpoint."""
    OWN = "own"
    """Each replica has those that its `model()` makes; they are never sent, nor saved."""


class TaskReference(Section):
    """The user's class."""

    entrypoint: Annotated[str, AfterValidator(_is_entrypoint)] = Field(
        examples=["digits:Digits"],
        json_schema_extra={"pattern": ENTRYPOINT_PATTERN, "maxLength": 500},
    )
    """`module:Class` of the task. The module is looked up in the manifest's folder first."""

    arguments: dict[str, JsonValue] = Field(default_factory=dict, max_length=200)
    """Keyword arguments of the class."""

    frozen: Annotated[FrozenParameters, Field(strict=False)] = FrozenParameters.SHARED
    """Frozen parameters. shared: the shards and every checkpoint hold them. own: `model()` makes
    them in each replica, such as a pretrained model from a file. Then they keep their element type
    and are never uploaded, fetched or exported, and all replicas must have the same values."""

    source: TaskSource | None = Field(default=None, json_schema_extra=ON_A_CLUSTER)
    """Where the code comes from. null: it is in the image."""

    @property
    def module(self) -> str:
        return self.entrypoint.partition(":")[0]


class Audit(StrEnum):
    """What is kept of the ledgers, in which each process writes down its own updates."""

    FULL = "full"
    """Every record, to the end: the disk use grows with the run."""
    SUMMARY = "summary"
    """Records of the checkpoints that are kept; older ones become sums, at each checkpoint."""
    OFF = "off"
    """Nothing, so that there is no audit. kubectl takes it for false without quotes."""


class Spec(Section):
    """What is trained, how, until when, and by which processes."""

    task: TaskReference = Field(examples=[{"entrypoint": "digits:Digits"}])
    """The user's class: model, data, loss, measures."""

    strategy: Strategy = Field(
        examples=[{"downpour": {"optimizer": {"adagrad": {"learningRate": 0.05}}}}]
    )
    """How the replicas work together."""

    batch_size: Count | None = Field(default=None, examples=[32])
    """Samples per step of one replica. Required, but not of sandblaster."""

    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    """Seed of everything that is random: initial parameters, order of the data."""

    portion_size: Count | None = None
    """Samples of a portion, a multiple of batchSize. null: the coordinator chooses. Not
    of sandblaster, which has a portionSize of its own."""

    stop: Stop = Field(examples=[{"epochs": 10}])
    """When the job is complete."""

    evaluation: Evaluation | None = Evaluation()
    """When the model is measured on the test split. null, or `{everyEpochs: 0}`: at the end
    only."""

    checkpoint: Checkpoint = Checkpoint()
    """Where and how often the state is written."""

    coordinator: Coordinator = Coordinator()
    """The process that gives out work."""

    parameter_server: ParameterServer = ParameterServer()
    """The processes that hold the parameters."""

    replicas: Replicas = Replicas()
    """The processes that train."""

    transport: TransportField = Transport()
    """How gradients and parameters travel. A text is short for its kind."""

    failure_policy: FailurePolicy = FailurePolicy()
    """What is survived, and how often."""

    record: bool = False
    """Log the order of pushes and fetches, so that `disttrain replay` can repeat the run."""

    audit: Annotated[Audit, Field(strict=False)] | None = None
    """What is kept for `disttrain audit`. null: full with `record: true`, which needs it, else
    summary, which takes no more disk the longer a run is, if it writes checkpoints."""

    image: Annotated[str, Field(min_length=1, max_length=1000)] | None = Field(
        default=None, json_schema_extra=ON_A_CLUSTER
    )
    """Container image of all processes. null: the runtime image of the operator's settings."""

    suspend: bool = Field(default=False, json_schema_extra=ON_A_CLUSTER)
    """Stop all processes after a checkpoint; false again goes on from there."""

    active_deadline_seconds: Count | None = Field(default=None, json_schema_extra=ON_A_CLUSTER)
    """Seconds after its start, or after the latest resume, when the job fails. null: no end."""

    pending_deadline_seconds: Count | None = Field(default=None, json_schema_extra=ON_A_CLUSTER)
    """Seconds after its creation, or after the latest resume, in which training must have begun,
    whatever hinders it, else the job fails. null: no end."""

    ttl_seconds_after_finished: WholeNumber | None = Field(
        default=None, json_schema_extra=ON_A_CLUSTER
    )
    """Seconds after its end when the job is deleted; its volume is kept. null: never."""

    managed_by: Annotated[str, Field(min_length=1, max_length=63)] | None = Field(
        default=None, json_schema_extra=ON_A_CLUSTER
    )
    """Who looks after the job. null: the operator, which leaves jobs of any other value than
    `disttrain.dev/operator`, or than its chart's `managedBy`, alone."""

    @property
    def shards(self) -> int:
        """Processes of the parameter server; 0 with a strategy that has none."""
        holding = self.strategy.rule.holding_replicas(self.replicas.count)
        given = self.parameter_server.shards
        return 0 if holding else self.replicas.parts if given is None else given


class DistTrainJob(Section):
    """One job: a model, its data, and the processes that train it."""

    api_version: Literal["disttrain.dev/v1alpha1"] = Field(examples=[API_VERSION])
    """Version of this format."""

    kind: Literal["DistTrainJob"] = Field(examples=[KIND])
    """What the manifest describes."""

    metadata: Metadata = Field(examples=[{"name": "digits"}])
    """What the job is called."""

    spec: Spec
    """What is trained, how, until when, and by which processes."""

    status: JsonValue = Field(default=None, exclude=True)
    """Set on a cluster: how the job is. Accepted here and not looked at."""
