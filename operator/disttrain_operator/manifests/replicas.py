"""What keeps the replicas: one ReplicaSet, or a StatefulSet for each replica of several processes.

The StatefulSets differ in name and label alone, so that one of them stands for all in what is
stored, and replicas are added and removed as wholes.
"""

from disttrain.job import cluster_labels, cluster_names
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests import template
from disttrain_operator.manifests.context import Context, Object, Scale
from disttrain_operator.manifests.pod import pod_template
from disttrain_operator.workload import Workload

_FIRST = Workload(Role.REPLICA, 0)


def keeper(context: Context, scale: Scale) -> Object:
    """What keeps all replicas, or the first one if each has several processes."""
    return _set_of_first(context, scale) if context.partitions > 1 else _set_of_all(context, scale)


def of_replica(keeper: Object, job: str, replica_index: int) -> Object:
    """What the keeper of one replica of several processes is for another one."""
    label = {"labels": {cluster_labels.REPLICA_INDEX: str(replica_index)}}
    own = {
        "metadata": {"name": cluster_names.replica_group_set(job, replica_index), **label},
        "spec": {"selector": {"matchLabels": label["labels"]}, "template": {"metadata": label}},
    }
    return template.merge(keeper, own)


def _set_of_all(context: Context, scale: Scale) -> Object:
    """The ReplicaSet: replicas are alike, any of them may go, and their template never changes."""
    name = cluster_names.replica_set(context.name)
    spec = {"replicas": scale.replicas, **pods(context, Role.REPLICA)}
    return context.new(Kind.ReplicaSet, name, Role.REPLICA, spec=spec)


def _set_of_first(context: Context, scale: Scale) -> Object:
    """The StatefulSet of the first replica: its processes start at once, each under its name."""
    spec = set_spec(context, scale.pods(_FIRST)) | pods(context, Role.REPLICA)
    made = context.new(Kind.StatefulSet, _FIRST.name(context.name), Role.REPLICA, spec=spec)
    return of_replica(made, context.name, 0)


def set_spec(context: Context, num_pods: int | None) -> Object:
    """What all StatefulSets of a job have in common."""
    return {
        "replicas": num_pods,
        "serviceName": cluster_names.service(context.name),
        "podManagementPolicy": "Parallel",
        # Nothing but its end or its node's takes a process away.
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 1,
    }


def pods(context: Context, role: Role) -> Object:
    selected = cluster_labels.pods_of(context.name, context.uid, role)
    return {"selector": {"matchLabels": selected}, "template": pod_template(context, role)}
