"""What keeps the pods: a StatefulSet of shards, a ReplicaSet of replicas, the coordinator's Job.

With the headless Service that names the pods, and the budget that lets one shard at a time leave.
"""

from disttrain.job import cluster_labels, cluster_names, pod_layout
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests import volume
from disttrain_operator.manifests.context import Context, Object, Scale
from disttrain_operator.manifests.pod import pod_template

_PORTS = {
    pod_layout.CONTROL_PORT_NAME: pod_layout.CONTROL_PORT,
    pod_layout.DATA_PORT_NAME: pod_layout.DATA_PORT,
    pod_layout.METRICS_PORT_NAME: pod_layout.METRICS_PORT,
}

_NEVER_GIVE_UP = 2**31 - 1
"""Only the operator counts restarts."""


def shards(context: Context, scale: Scale) -> Object:
    """The StatefulSet: all shards start at once, each under a name of its own."""
    name = cluster_names.shard_set(context.name)
    spec = {
        "replicas": scale.shards,
        "serviceName": cluster_names.service(context.name),
        "podManagementPolicy": "Parallel",
        # Nothing but its end or its node's takes a shard away.
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 1,
        **_pods(context, Role.SHARD),
    }
    return context.new(Kind.StatefulSet, name, Role.SHARD, spec=spec)


def replicas(context: Context, scale: Scale) -> Object:
    """The ReplicaSet: replicas are alike, any of them may go, and their template never changes."""
    name = cluster_names.replica_set(context.name)
    spec = {"replicas": scale.replicas, **_pods(context, Role.REPLICA)}
    return context.new(Kind.ReplicaSet, name, Role.REPLICA, spec=spec)


def coordinator(context: Context, scale: Scale) -> Object:
    """The Job: one pod, never two at once, until it has decided how the job ends."""
    spec = {
        "completionMode": "Indexed",  # Gives the pod a host name that stays.
        "completions": 1,
        "parallelism": 1,
        "suspend": not scale.coordinator,
        "backoffLimit": _NEVER_GIVE_UP,
        # The default starts the next pod while the one before is still ending.
        "podReplacementPolicy": "Failed",
        "template": pod_template(context, Role.COORDINATOR),
    }
    name = cluster_names.coordinator_job(context.name)
    return context.new(Kind.Job, name, Role.COORDINATOR, spec=spec)


def _pods(context: Context, role: Role) -> Object:
    selected = cluster_labels.pods_of(context.name, context.uid, role)
    return {"selector": {"matchLabels": selected}, "template": pod_template(context, role)}


def service(context: Context) -> Object:
    spec = {
        "clusterIP": "None",
        # Processes look for each other while they become ready.
        "publishNotReadyAddresses": True,
        "selector": cluster_labels.all_pods(context.name, context.uid),
        "ports": [{"name": name, "port": port} for name, port in _PORTS.items()],
    }
    return context.new(Kind.Service, cluster_names.service(context.name), spec=spec)


def shard_budget(context: Context) -> Object | None:
    """The budget of several shards; one that is not ready never holds up a drain."""
    if context.job.spec.shards <= 1:
        return None
    selected = cluster_labels.pods_of(context.name, context.uid, Role.SHARD)
    spec = {
        # Pods that share a node's volume leave it together, or a drain waits for ever.
        "maxUnavailable": "100%" if volume.is_for_one_node(context) else 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": selected},
    }
    name = cluster_names.shard_set(context.name)
    return context.new(Kind.PodDisruptionBudget, name, Role.SHARD, spec=spec)
