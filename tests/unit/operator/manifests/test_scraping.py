"""Prometheus finds every pod of a job and is let in."""

import pytest

from builders.operator_jobs import context
from disttrain.job import cluster_labels, pod_layout
from disttrain.job.names import Role
from disttrain_operator.manifests.access import network_policy
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.manifests.pod import pod_template


@pytest.mark.parametrize("role", list(Role))
def test_a_pod_has_the_labels_and_the_port_that_monitors_look_for(role: Role) -> None:
    template = pod_template(context(), role)

    # The words of the chart's PodMonitor and of docs/monitoring.md.
    labels = template["metadata"]["labels"]
    assert labels["app.kubernetes.io/name"] == "disttrain"
    assert labels["app.kubernetes.io/managed-by"] == "disttrain-operator"
    assert labels["app.kubernetes.io/instance"] == "digits"
    assert labels["app.kubernetes.io/component"] == role.value
    (container,) = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["metrics"] == pod_layout.METRICS_PORT


def test_anybody_reaches_the_metrics_and_only_pods_of_jobs_the_other_ports() -> None:
    spec = network_policy("here", ManifestConfig())["spec"]

    own = cluster_labels.of_namespace()
    for role in Role:
        labels = pod_template(context(), role)["metadata"]["labels"]
        assert own.items() <= labels.items()
    assert spec["podSelector"]["matchLabels"] == own
    open_to = {port["port"]: rule.get("from") for rule in spec["ingress"] for port in rule["ports"]}
    assert open_to.pop(pod_layout.METRICS_PORT) is None
    assert set(open_to) == {pod_layout.CONTROL_PORT, pod_layout.DATA_PORT}
    assert all(who == [{"podSelector": {"matchLabels": own}}] for who in open_to.values())
