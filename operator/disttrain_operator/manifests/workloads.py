"""What keeps the pods: a StatefulSet of shards, a ReplicaSet of replicas, the coordinator's Job."""

from disttrain.job import cluster_labels, cluster_names
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.context import Context, Object, Scale
from disttrain_operator.manifests.pod import pod_template

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
