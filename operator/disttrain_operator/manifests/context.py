"""The job whose objects are made, and what all its objects have in common."""

from dataclasses import dataclass
from typing import Any

from disttrain.job import cluster_labels
from disttrain.job.names import Role
from disttrain.job.spec import DistTrainJob
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.workload import Workload

Object = dict[str, Any]
"""An object as the API server reads it."""


def shared(kind: Kind, name: str, namespace: str, **content: Any) -> Object:
    labels = cluster_labels.of_namespace()
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {**kind.header, "metadata": metadata, **content}


@dataclass(frozen=True, slots=True)
class Context:
    """A job as the API server knows it, and the administrator's settings."""

    name: str
    namespace: str
    uid: str
    job: DistTrainJob
    config: ManifestConfig

    def labels(self, role: Role | None = None) -> dict[str, str]:
        if role is None:
            return cluster_labels.of_job(self.name, self.uid)
        return cluster_labels.of_role(self.name, self.uid, role)

    def new(self, kind: Kind, name: str, role: Role | None = None, **content: Any) -> Object:
        metadata = {
            "name": name,
            "namespace": self.namespace,
            "labels": self.labels(role),
            "ownerReferences": [self.owner],
        }
        return {**kind.header, "metadata": metadata, **content}

    @property
    def processes(self) -> int:
        """Processes of each replica."""
        return self.job.spec.replicas.processes

    @property
    def owner(self) -> Object:
        return {
            **Kind.DistTrainJob.header,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            # Deleting the job in the foreground waits for its pods.
            "blockOwnerDeletion": True,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """How much of a job shall run. All that a stop, a resume or `kubectl scale` changes.

    None stands for as much as there is.
    """

    shards: int | None
    replicas: int | None
    processes: int = 1
    """Processes of each replica."""
    coordinator: bool | None
    """Whether the coordinator shall run."""

    def pods(self, workload: Workload) -> int | None:
        """How many pods a workload shall have; None for as many as it has."""
        if workload.role is Role.COORDINATOR:
            return None if self.coordinator is None else int(self.coordinator)
        groups = self.shards if workload.role is Role.SHARD else self.replicas
        if groups is None or workload.group is None:
            return groups
        return self.processes if workload.group < groups else 0
