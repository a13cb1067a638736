"""What makes the pods of a job: by whose pods they are, not by the kind of object. Pure."""

from dataclasses import dataclass
from typing import Final

from disttrain.job import cluster_names
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind

_KEEPERS: Final = {
    Role.COORDINATOR: Kind.Job,
    Role.SHARD: Kind.StatefulSet,
    Role.REPLICA: Kind.ReplicaSet,
}
"""Of roles whose groups are one process each: one object keeps all of them."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What keeps the pods of a role, or of one group of several processes."""

    role: Role
    group: int | None = None
    """The replica whose processes it keeps. None: all groups of its role, each of one process."""

    @property
    def kind(self) -> Kind:
        return _KEEPERS[self.role] if self.group is None else Kind.StatefulSet

    def name(self, job: str) -> str:
        if self.group is not None:
            return cluster_names.replica_group_set(job, self.group)
        return {
            Role.COORDINATOR: cluster_names.coordinator_job,
            Role.SHARD: cluster_names.shard_set,
            Role.REPLICA: cluster_names.replica_set,
        }[self.role](job)


def of(kind: Kind, job: str, name: str) -> Workload | None:
    """What an object of a job keeps, by its kind and its name; None if it makes no pods.

    Of a job's StatefulSets all but those of replicas keep shards. A ReplicaSet keeps replicas under
    any name: an older operator's Deployment named it.
    """
    if kind is Kind.StatefulSet:
        group = cluster_names.replica_of_set(job, name)
        return Workload(Role.SHARD) if group is None else Workload(Role.REPLICA, group)
    role = next((role for role, keeper in _KEEPERS.items() if keeper is kind), None)
    return None if role is None else Workload(role)
