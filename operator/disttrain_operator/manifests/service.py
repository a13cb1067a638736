"""The headless Service: every pod's host name, known before the pod is ready."""

from disttrain.job import cluster_labels, cluster_names, pod_layout
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.context import Context, Object

_PORTS = {
    pod_layout.CONTROL_PORT_NAME: pod_layout.CONTROL_PORT,
    pod_layout.DATA_PORT_NAME: pod_layout.DATA_PORT,
    pod_layout.METRICS_PORT_NAME: pod_layout.METRICS_PORT,
}


def service(context: Context) -> Object:
    spec = {
        "clusterIP": "None",
        # Processes look for each other while they become ready.
        "publishNotReadyAddresses": True,
        "selector": cluster_labels.all_pods(context.name, context.uid),
        "ports": [{"name": name, "port": port} for name, port in _PORTS.items()],
    }
    return context.new(Kind.Service, cluster_names.service(context.name), spec=spec)
