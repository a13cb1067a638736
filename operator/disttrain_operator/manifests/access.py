"""What the jobs of a namespace share: their account, and who may connect to their pods.

Each coordinator may patch the status of its own job, nothing else. The coordinators of a namespace
share an account. Its binding lets them patch statuses, and an admission policy of the chart lets a
pod patch that of its own job alone.

Only pods of jobs reach the ports of pods of jobs, and scrapers their metrics. One policy is for all
jobs of a namespace: between jobs their keys decide who is listened to.
"""

from disttrain.job import cluster_labels, cluster_names, pod_layout
from disttrain.job.names import Role
from disttrain_operator import json_text
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.manifests.context import Context, Object, shared

_GROUP = "rbac.authorization.k8s.io"


def service_account(namespace: str) -> Object:
    # The pod asks for the token itself.
    name = cluster_names.COORDINATOR_ACCOUNT
    return shared(Kind.ServiceAccount, name, namespace, automountServiceAccountToken=False)


def role_binding(namespace: str) -> Object:
    name = cluster_names.COORDINATOR_ACCOUNT
    return shared(Kind.RoleBinding, name, namespace, **_rights_of(name, namespace))


def binding_of(context: Context, coordinator: Object) -> Object | None:
    """Gives the same rights to the account that the user chose for a coordinator's Job, if any."""
    account = coordinator["spec"]["template"]["spec"]["serviceAccountName"]
    if account == cluster_names.COORDINATOR_ACCOUNT:
        return None
    name = cluster_names.own_account_binding(context.name, context.uid)
    rights = _rights_of(account, context.namespace)
    return context.new(Kind.RoleBinding, name, Role.COORDINATOR, **rights)


def _rights_of(account: str, namespace: str) -> Object:
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    role = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": cluster_names.COORDINATOR_ACCOUNT}
    return {"roleRef": role, "subjects": [subject]}


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
