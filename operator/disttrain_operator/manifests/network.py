"""The NetworkPolicy: only the job's own pods reach its ports, and anybody its metrics."""

from disttrain.job import cluster_labels, cluster_names, pod_layout
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.context import Context, Object


def network_policy(context: Context) -> Object:
    """The policy of all pods of the job; what they connect to is not limited."""
    own = {"podSelector": {"matchLabels": cluster_labels.all_pods(context.name, context.uid)}}
    between = [_port(pod_layout.CONTROL_PORT), _port(pod_layout.DATA_PORT)]
    spec = {
        **own,
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [own], "ports": between},
            {"ports": [_port(pod_layout.METRICS_PORT)]},
        ],
    }
    name = cluster_names.network_policy(context.name)
    return context.new(Kind.NetworkPolicy, name, spec=spec)


def _port(number: int) -> Object:
    return {"port": number, "protocol": "TCP"}
