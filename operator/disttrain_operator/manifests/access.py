"""Whose identity pods have, and who may connect to them.

Each coordinator may patch the status of its own job, nothing else. The coordinators of a namespace
share an account. Its binding lets them patch statuses, and an admission policy of the chart lets a
pod patch that of its own job alone.

Only pods of jobs reach the ports of pods of jobs, and scrapers their metrics. One policy is for all
jobs of a namespace: between jobs their certificates decide who is listened to. What the processes
of one replica say to each other has none: a policy of the job lets its own replicas alone speak
there.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from disttrain.job import cluster_labels, cluster_names, pod_layout
from disttrain.job.names import Role
from disttrain_operator import json_text, untrusted
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests import volume
from disttrain_operator.manifests.config import ManifestConfig, PodSecurity
from disttrain_operator.manifests.context import Context, Object, shared

_GROUP = "rbac.authorization.k8s.io"

_SYSTEM_PRIORITIES = "system-"
"""They evict everybody's pods."""


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


def policy_between_processes(context: Context) -> Object | None:
    """Lets the pods of a job's replicas reach each other at any port; None where each is alone.

    torch.distributed listens at ports that the system chooses. Policies add up: all that the one of
    the namespace lets in stays allowed.
    """
    if context.processes == 1:
        return None
    own = {"matchLabels": cluster_labels.pods_of(context.name, context.uid, Role.REPLICA)}
    spec = {
        "podSelector": own,
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": own}]}],
    }
    name = cluster_names.replica_policy(context.name, context.uid)
    return context.new(Kind.NetworkPolicy, name, Role.REPLICA, spec=spec)


def _port(number: int) -> Object:
    return {"port": number, "protocol": "TCP"}


def violations(template: Object, role: Role, config: ManifestConfig) -> list[str]:
    """What a pod template claims of others: an account, a node, a priority."""
    spec = template.get("spec") or {}
    return [*_of_account(spec, role, config), *_of_place(spec, config)]


def _of_account(spec: Object, role: Role, config: ManifestConfig) -> Iterator[str]:
    names = [spec[name] for name in ("serviceAccountName", "serviceAccount") if spec.get(name)]
    if role is Role.COORDINATOR:
        own = cluster_names.COORDINATOR_ACCOUNT
        names = [name for name in names if name != own]
    allowed = config.allowed_service_accounts
    for name in names:
        if not any(fnmatchcase(str(name), pattern) for pattern in allowed):
            yield f"spec.serviceAccountName must be of allowedServiceAccounts, got '{name}'"
    if role is Role.COORDINATOR or names:
        return
    if spec.get("automountServiceAccountToken"):
        yield "spec.automountServiceAccountToken must be false without an account of its own"
    if _has_projected_token(spec):
        yield "spec.volumes must project no token without an account of its own"


def _has_projected_token(spec: Object) -> bool:
    # Ours is for the operator alone, and says no more than which pod it is.
    own = {"name": volume.IDENTITY, **volume.token()}
    volumes = [each for each in untrusted.items(spec.get("volumes")) if each != own]
    projected = [untrusted.mapping(each, "projected") for each in volumes]
    sources = [source for each in projected for source in untrusted.items(each.get("sources"))]
    return any(source.get("serviceAccountToken") for source in sources)


def _of_place(spec: Object, config: ManifestConfig) -> Iterator[str]:
    if config.pod_security is PodSecurity.PRIVILEGED:
        return
    if spec.get("nodeName"):
        yield "spec.nodeName must not be set: the scheduler finds a node"
    if str(spec.get("priorityClassName") or "").startswith(_SYSTEM_PRIORITIES):
        yield f"spec.priorityClassName must not begin with {_SYSTEM_PRIORITIES}"
