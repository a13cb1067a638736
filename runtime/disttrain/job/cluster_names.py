"""Names and addresses of what a job has on Kubernetes. Pure; made here and nowhere else.

`job` is the job's name, of at most 40 characters: the longest name below stays within the 63 of a
label although controllers append to it, and within the 52 beyond which StatefulSets break. Of a
replica beyond the thousandth that has several processes only a shorter name does.
"""

from dataclasses import dataclass
from typing import Final

from disttrain.job.names import Role

PLURAL = "disttrainjobs"
"""The resource's name in paths of the API server."""

OPERATOR_FIELD_MANAGER = "disttrain-operator"
"""Owner of the children, and of the status fields that the operator writes."""

COORDINATOR_FIELD_MANAGER = "disttrain-coordinator"
"""Owner of the status fields training, data, parameterServer and checkpoint."""

MANAGED_BY_OPERATOR = "disttrain.dev/operator"
"""The value of `spec.managedBy` that, like none, leaves the job to this operator."""

COORDINATOR_ACCOUNT = "disttrain-coordinator"
"""The ServiceAccount of the coordinators of a namespace, its RoleBinding, and the ClusterRole."""

NETWORK_POLICY = "disttrain-jobs"
"""The NetworkPolicy of all pods of a namespace's jobs."""

CONTAINER = "disttrain"
"""The container of every pod that runs a role; templates are merged into it by this name."""

LONGEST_SET: Final = 52
"""Characters of a StatefulSet's name: with a revision behind it, it is a label of at most 63."""


def service(job: str) -> str:
    return job


def shard_set(job: str) -> str:
    """The StatefulSet of the shards, and their PodDisruptionBudget."""
    return f"{job}-{Role.SHARD}"


def replica_set(job: str) -> str:
    """The ReplicaSet of replicas that are one process each."""
    return f"{job}-{Role.REPLICA}"


def replica_group_set(job: str, replica_index: int) -> str:
    """The StatefulSet of the processes of one replica that has several; its pods append theirs."""
    return f"{replica_set(job)}-{replica_index}"


def replica_of_set(job: str, name: str) -> int | None:
    """The replica whose processes a StatefulSet of this name keeps; None for another one."""
    index = name.removeprefix(f"{replica_set(job)}-")
    is_one = index != name and index.isascii() and index.isdecimal() and str(int(index)) == index
    return int(index) if is_one else None


def replica_policy(job: str, uid: str) -> str:
    """The NetworkPolicy of replicas of several processes; its uid keeps it out of others' way."""
    return f"{replica_set(job)}-{uid[:8]}"


def coordinator_job(job: str) -> str:
    return f"{job}-{Role.COORDINATOR}"


def own_account_binding(job: str, uid: str) -> str:
    """The RoleBinding of a coordinator that has an account of its own.

    It holds part of the uid, so that it never meets somebody else's.
    """
    return f"{coordinator_job(job)}-{uid[:8]}"


def launch_secret(job: str, uid: str) -> str:
    """The Secret with the manifest, and of whom pods get their certificates.

    It holds part of the uid, since the operator may not read whose an older Secret is. Older
    operators made another one of another name: a job of theirs that is made anew gets both.
    """
    return f"{job}-trust-{uid[:8]}"


def checkpoints_claim(job: str) -> str:
    return f"{job}-checkpoints"


@dataclass(frozen=True, slots=True)
class Hosts:
    """Host names of the pods that others connect to."""

    job: str
    namespace: str

    def shard(self, shard_index: int) -> str:
        """The host of a shard, counted from 0; the same after each of its restarts."""
        return self._in_service(f"{shard_set(self.job)}-{shard_index}")

    @property
    def coordinator(self) -> str:
        """The host of the coordinator; the same after each of its restarts."""
        return self._in_service(f"{coordinator_job(self.job)}-0")

    def _in_service(self, pod: str) -> str:
        return f"{pod}.{service(self.job)}.{self.namespace}.svc"
