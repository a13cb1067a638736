"""The kinds of objects that the operator makes or looks at, and where the API serves them."""

from dataclasses import dataclass
from enum import Enum

from disttrain.job.cluster_names import PLURAL
from disttrain.job.spec import API_VERSION


@dataclass(frozen=True, slots=True)
class Resource:
    """Where the API serves a kind."""

    api_version: str
    plural: str

    def path(self, namespace: str | None) -> str:
        """The collection in a namespace; None: in all of them."""
        root = "apis" if "/" in self.api_version else "api"
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"/{root}/{self.api_version}{within}/{self.plural}"


class Kind(Enum):
    """A kind by the name that stands in its objects, with its resource."""

    DistTrainJob = Resource(API_VERSION, PLURAL)
    """What users write."""
    StatefulSet = Resource("apps/v1", "statefulsets")
    """Keeps the shards."""
    Deployment = Resource("apps/v1", "deployments")
    """Keeps the replicas."""
    Job = Resource("batch/v1", "jobs")
    """Keeps the coordinator, until it has ended."""
    Pod = Resource("v1", "pods")
    """Made by the three above, never by the operator."""
    Service = Resource("v1", "services")
    """Gives the pods their host names."""
    ConfigMap = Resource("v1", "configmaps")
    """Holds the manifest for the pods."""
    Secret = Resource("v1", "secrets")
    """Holds the keys; may only be created, so it is never read."""
    ServiceAccount = Resource("v1", "serviceaccounts")
    """The coordinator's."""
    Role = Resource("rbac.authorization.k8s.io/v1", "roles")
    """What the coordinator may do."""
    RoleBinding = Resource("rbac.authorization.k8s.io/v1", "rolebindings")
    """Gives the coordinator its role."""
    PodDisruptionBudget = Resource("policy/v1", "poddisruptionbudgets")
    """Keeps a drain from taking several shards at once."""
    NetworkPolicy = Resource("networking.k8s.io/v1", "networkpolicies")
    """Keeps strangers away from the pods."""
    PersistentVolumeClaim = Resource("v1", "persistentvolumeclaims")
    """Holds checkpoints and journals; outlives the job."""
    Event = Resource("v1", "events")
    """What happened to a job, for people."""


WORKLOADS = (Kind.StatefulSet, Kind.Deployment, Kind.Job)
"""The kinds that make pods."""
NAME_OTHERS = (Kind.RoleBinding, *WORKLOADS)
"""Kinds whose objects name others that must be there: a role, and what pods are made with."""
