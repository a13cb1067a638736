"""Labels and annotations of what a job has on Kubernetes. Pure; made here and nowhere else."""

from disttrain.job.names import Role

NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"
JOB_UID = "disttrain.dev/job-uid"

APPLICATION = "disttrain"
"""Value of the label `app.kubernetes.io/name`."""

OPERATOR = "disttrain-operator"
"""Value of the label `app.kubernetes.io/managed-by`."""

POD_INDEX = "apps.kubernetes.io/pod-index"
"""Label in which the StatefulSet's controller writes the index of a pod."""

FIRST_POD = "0"
"""Value of that label of the pod that speaks for a replica of several processes."""

REPLICA_INDEX = "disttrain.dev/replica-index"
"""Label of what keeps a replica of several processes, and of its pods: which replica it is."""

OUTCOME = "disttrain.dev/outcome"
"""Annotation of workloads that were stopped for good: JSON with phase, reason, message and time."""


def of_namespace() -> dict[str, str]:
    """The labels of what all jobs of a namespace share; every pod of a job has them too."""
    return {NAME: APPLICATION, MANAGED_BY: OPERATOR}


def of_job(job: str, uid: str) -> dict[str, str]:
    return {**of_namespace(), **all_pods(job, uid)}


def of_role(job: str, uid: str, role: Role) -> dict[str, str]:
    return {**of_job(job, uid), COMPONENT: role.value}


def all_pods(job: str, uid: str) -> dict[str, str]:
    """Selects the pods of a job. Its uid keeps out those of a deleted job of the same name."""
    return {INSTANCE: job, JOB_UID: uid}


def pods_of(job: str, uid: str, role: Role) -> dict[str, str]:
    return {**all_pods(job, uid), COMPONENT: role.value}


def speakers_of(job: str, uid: str) -> dict[str, str]:
    """Selects one pod of each replica that has several: who counts pods then counts replicas."""
    return {**pods_of(job, uid, Role.REPLICA), POD_INDEX: FIRST_POD}


def managed() -> dict[str, str]:
    return {MANAGED_BY: OPERATOR}


def selector_text(selector: dict[str, str]) -> str:
    """A selector as the API's parameters and `status.selector` write it."""
    return ",".join(f"{label}={value}" for label, value in sorted(selector.items()))
