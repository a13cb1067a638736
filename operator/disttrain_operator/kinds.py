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

    def path(self, namespace: str | None, name: str | None = None) -> str:
        """An object, or with name None the collection; no namespace: in all of them."""
        # Else what is asked of an object would be done to all of its kind.
        assert name != "", "an object has a name"  # noqa: S101 - for ourselves.
        root = "apis" if "/" in self.api_version else "api"
        within = f"/namespaces/{namespace}" if namespace else ""
        inside = "" if name is None else f"/{name}"
        return f"/{root}/{self.api_version}{within}/{self.plural}{inside}"


class Kind(Enum):
    """A kind by the name that stands in its objects, with its resource."""

    DistTrainJob = Resource(API_VERSION, PLURAL)
    """What users write."""
    StatefulSet = Resource("apps/v1", "statefulsets")
    """Keeps the shards; or the processes of one replica, if it has several."""
    ReplicaSet = Resource("apps/v1", "replicasets")
    """Keeps the replicas that are one process each."""
    Deployment = Resource("apps/v1", "deployments")
    """Kept the replicas of jobs that an older operator made; scaled, and otherwise left alone."""
    Job = Resource("batch/v1", "jobs")
    """Keeps the coordinator, until it has ended."""
    Pod = Resource("v1", "pods")
    """Made by the three above, never by the operator."""
    Service = Resource("v1", "services")
    """Gives the pods their host names."""
    Secret = Resource("v1", "secrets")
    """Holds what pods are told, and may only be created; one holds the operator's own secret."""
    ServiceAccount = Resource("v1", "serviceaccounts")
    """Of the coordinators of a namespace."""
    RoleBinding = Resource("rbac.authorization.k8s.io/v1", "rolebindings")
    """Lets coordinators write statuses."""
    PodDisruptionBudget = Resource("policy/v1", "poddisruptionbudgets")
    """Keeps a drain from taking several shards at once."""
    NetworkPolicy = Resource("networking.k8s.io/v1", "networkpolicies")
    """Keeps strangers away from the pods of a namespace's jobs, and lets processes of one replica
    reach each other."""
    PersistentVolumeClaim = Resource("v1", "persistentvolumeclaims")
    """Holds checkpoints and journals; outlives the job."""
    Lease = Resource("coordination.k8s.io/v1", "leases")
    """Says which operator looks after a namespace, or after all."""
    Node = Resource("v1", "nodes")
    """Asked for when a pod does not end; in no namespace."""
    TokenReview = Resource("authentication.k8s.io/v1", "tokenreviews")
    """Says whose a token is; is kept nowhere, and in no namespace."""
    Event = Resource("v1", "events")
    """What happened to a job, for people."""

    @property
    def header(self) -> dict[str, str]:
        """What an object of the kind begins with."""
        return {"apiVersion": self.value.api_version, "kind": self.name}


WORKLOADS = (Kind.StatefulSet, Kind.ReplicaSet, Kind.Job)
"""The kinds that make pods."""
CHILDREN = (
    *WORKLOADS,
    Kind.Service,
    Kind.PodDisruptionBudget,
    Kind.PersistentVolumeClaim,
)
"""What is made for a job, but for the Secret, which nobody may read."""
SHARED = (Kind.ServiceAccount, Kind.RoleBinding, Kind.NetworkPolicy)
"""Kinds of which all jobs of a namespace share one object. A RoleBinding of its own has a job only
for a coordinator with an account of its own, a NetworkPolicy for replicas of several processes."""
