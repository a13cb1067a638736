"""The PodDisruptionBudget: one shard at a time leaves its node on purpose."""

from disttrain.job import cluster_labels, cluster_names
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests import volume
from disttrain_operator.manifests.context import Context, Object


def shard_budget(context: Context) -> Object | None:
    """The budget of several shards; one that is not ready never holds up a drain."""
    if context.job.spec.parameter_server.shards == 1:
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
