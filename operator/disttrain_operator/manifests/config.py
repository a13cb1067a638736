"""What the administrator says about all jobs' objects."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from disttrain.job.checkpoint import WhenDeleted
from disttrain.job.cluster_names import MANAGED_BY_OPERATOR


class PodSecurity(StrEnum):
    """The Pod Security level that the pods of all jobs keep, whatever their templates say."""

    RESTRICTED = "restricted"
    """No root, no capabilities, no escalation, no more than the runtime's own seccomp profile."""
    BASELINE = "baseline"
    """What containers have by default, root among it; nothing of the node."""
    PRIVILEGED = "privileged"
    """Everything."""


POD_SECURITY_CONTEXT: Final = (
    '{"runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532, '
    '"seccompProfile": {"type": "RuntimeDefault"}}'
)
"""The user is a number, so that the kubelet can tell that it is not root."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DefaultVolume:
    """The claim that is made for a job that does not say where its checkpoints lie."""

    size: str = "10Gi"
    """Capacity, as Kubernetes writes it."""
    storage_class: str | None = None
    """None: the cluster's default."""
    access_modes: tuple[str, ...] = ("ReadWriteMany",)
    """Many: the pods of a job run on several nodes. Once alone: all of them run on one."""
    when_deleted: WhenDeleted = WhenDeleted.RETAIN
    """What becomes of the claim when its job is deleted."""


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
    pod_security: PodSecurity = PodSecurity.RESTRICTED
    """What pod templates may ask for; our own pods keep the strictest level."""
    pod_security_context: str = POD_SECURITY_CONTEXT
    """The security context of all jobs' pods, as JSON, before templates are merged into it."""
    pod_defaults: str = "{}"
    """A pod template for all roles of all jobs, as JSON; those of jobs are merged into it."""
    metrics_from: str = "[]"
    """Peers of a NetworkPolicy that may scrape the pods, as JSON; none: everybody may."""
    allowed_service_accounts: tuple[str, ...] = ()
    """Patterns of the names that pod templates may ask for, such as `team-*`."""
    manager: str = MANAGED_BY_OPERATOR
    """Which jobs are looked after: those with this `managedBy`, by default also those with none."""
    removes_lost_pods: bool = True
    """Whether pods on lost nodes are deleted by force."""
