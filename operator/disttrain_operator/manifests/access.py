"""Who coordinators are to the API server: each may patch the status of its own job, nothing else.

The coordinators of a namespace share an account. Its binding lets them patch statuses, and an
admission policy of the chart lets a pod patch that of its own job alone.
"""

from disttrain.job import cluster_names
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.context import Context, Object, shared

_GROUP = "rbac.authorization.k8s.io"


def service_account(namespace: str) -> Object:
    # The pod asks for the token itself.
    name = cluster_names.COORDINATOR_ACCOUNT
    return shared(Kind.ServiceAccount, name, namespace, automountServiceAccountToken=False)


def role_binding(namespace: str) -> Object:
    """Gives that account its rights, which stand in the chart."""
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
