"""The whole manifest: a DistTrainJob, its metadata and its spec."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue
from pydantic_core import PydanticCustomError

from disttrain.job.checkpoint import Checkpoint
from disttrain.job.evaluation import Evaluation
from disttrain.job.failure_policy import FailurePolicy
from disttrain.job.roles import Coordinator, ParameterServer, Replicas, Transport
from disttrain.job.section import Count, Section
from disttrain.job.stop import Stop
from disttrain.job.strategy import Strategy

API_VERSION = "disttrain.dev/v1alpha1"
KIND = "DistTrainJob"

LONGEST_NAME = 40
"""Characters. Kubernetes allows 63 for a pod's name, and the roles append to the job's name."""


def _is_dns_label(name: str) -> str:
    if len(name) <= LONGEST_NAME and re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        return name
    raise PydanticCustomError(
        "bad_name",
        "must be at most {longest} characters a-z, 0-9 and '-', begin with a letter and end "
        "with a letter or digit, got '{name}'",
        {"longest": LONGEST_NAME, "name": name},
    )


def _is_entrypoint(entrypoint: str) -> str:
    module, separator, class_name = entrypoint.partition(":")
    if separator and class_name.isidentifier() and all(map(str.isidentifier, module.split("."))):
        return entrypoint
    raise PydanticCustomError(
        "bad_entrypoint",
        "must be 'module:Class', for example digits:Digits, got '{entrypoint}'",
        {"entrypoint": entrypoint},
    )


class Metadata(Section):
    """What the job is called."""

    name: Annotated[str, AfterValidator(_is_dns_label)] = Field(examples=["digits"])
    """Name of the job: a DNS label (RFC 1035) of at most 40 characters."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Free texts by which jobs are selected."""

    annotations: dict[str, str] = Field(default_factory=dict)
    """Free texts for tools and people."""


class TaskReference(Section):
    """The user's class."""

    entrypoint: Annotated[str, AfterValidator(_is_entrypoint)] = Field(examples=["digits:Digits"])
    """`module:Class` of the task. The module is looked up in the manifest's folder first."""

    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """Keyword arguments of the class."""


class Spec(Section):
    """What is trained, how, until when, and by which processes."""

    task: TaskReference = Field(examples=[{"entrypoint": "digits:Digits"}])
    """The user's class: model, data, loss, measures."""

    strategy: Strategy = Field(
        examples=[{"downpour": {"optimizer": {"adagrad": {"learningRate": 0.05}}}}]
    )
    """How the replicas work together."""

    batch_size: Count = Field(examples=[32])
    """Samples per step of one replica."""

    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    """Seed of everything that is random: initial parameters, order of the data."""

    portion_size: Count | None = None
    """Samples of a portion, a multiple of batchSize. null: the coordinator chooses."""

    stop: Stop = Field(examples=[{"epochs": 10}])
    """When the job is complete."""

    evaluation: Evaluation | None = Evaluation()
    """When the model is measured on the test split. null: at the end only."""

    checkpoint: Checkpoint = Checkpoint()
    """Where and how often the state is written."""

    coordinator: Coordinator = Coordinator()
    """The process that gives out work."""

    parameter_server: ParameterServer = ParameterServer()
    """The processes that hold the parameters."""

    replicas: Replicas = Replicas()
    """The processes that train."""

    transport: Annotated[Transport, Field(strict=False)] = Transport.AUTO
    """How gradients and parameters travel."""

    failure_policy: FailurePolicy = FailurePolicy()
    """What is survived, and how often."""

    record: bool = False
    """Log the order of pushes and fetches, so that `disttrain replay` can repeat the run."""


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
