"""What the administrator says about all jobs' objects."""

from dataclasses import dataclass, field
from enum import StrEnum


class PodFeature(StrEnum):
    """What a pod template may ask for only where the administrator allows it."""

    HOST_PATH = "hostPath"
    """Folders of the node."""
    HOST_NETWORK = "hostNetwork"
    """The node's network, and its ports."""
    PRIVILEGED = "privileged"
    """More rights on the node than a process of its own: privileges, capabilities, the node's
    processes."""
    SERVICE_ACCOUNT = "serviceAccount"
    """Another identity towards the API server, or its token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DefaultVolume:
    """The claim that is made for a job that does not say where its checkpoints lie."""

    size: str = "10Gi"
    """Capacity, as Kubernetes writes it."""
    storage_class: str | None = None
    """None: the cluster's default."""
    access_modes: tuple[str, ...] = ("ReadWriteMany",)
    """Many: the pods of a job run on several nodes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ManifestConfig:
    """What is the same in the objects of all jobs."""

    image: str = "disttrain-runtime:0.1.0"
    """Image of all roles of a job that names none."""
    image_pull_policy: str | None = None
    """None: as the API server decides by the image's tag."""
    image_pull_secrets: tuple[str, ...] = ()
    """Names of secrets in the job's namespace."""
    default_volume: DefaultVolume | None = field(default_factory=DefaultVolume)
    """None: a job must say where its checkpoints lie."""
    allowed_features: frozenset[PodFeature] = frozenset()
    """What pod templates may ask for."""
