"""The NetworkPolicy: only pods of jobs reach the ports of jobs' pods, and scrapers their metrics.

One for all jobs of a namespace: between jobs their keys decide who is listened to.
"""

from disttrain.job import cluster_labels, cluster_names, pod_layout
from disttrain_operator import json_text
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.manifests.context import Object, shared


def network_policy(namespace: str, config: ManifestConfig) -> Object:
    """The policy of all pods of jobs in a namespace; what they connect to is not limited."""
    own = {"podSelector": {"matchLabels": cluster_labels.of_namespace()}}
    between = [_port(pod_layout.CONTROL_PORT), _port(pod_layout.DATA_PORT)]
    metrics: Object = {"ports": [_port(pod_layout.METRICS_PORT)]}
    if scrapers := json_text.read(config.metrics_from):
        metrics["from"] = scrapers
    spec = {
        **own,
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [own], "ports": between},
            metrics,
        ],
    }
    return shared(Kind.NetworkPolicy, cluster_names.NETWORK_POLICY, namespace, spec=spec)


def _port(number: int) -> Object:
    return {"port": number, "protocol": "TCP"}
