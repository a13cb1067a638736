"""The coordinator's identity: it may read its own job and patch its status, nothing else."""

from disttrain.job import cluster_names
from disttrain.job.names import Role as JobRole
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.context import Context, Object

_GROUP = "disttrain.dev"
_PLURAL = Kind.DistTrainJob.value.plural


def service_account(context: Context) -> Object:
    """The ServiceAccount of the coordinator's pod."""
    return context.new(
        Kind.ServiceAccount,
        cluster_names.coordinator_job(context.name),
        JobRole.COORDINATOR,
        # The pod asks for the token itself.
        automountServiceAccountToken=False,
    )


def role(context: Context) -> Object:
    """The Role for one job by its name."""
    rules = [_rule(_PLURAL, "get", context), _rule(f"{_PLURAL}/status", "patch", context)]
    name = cluster_names.coordinator_job(context.name)
    return context.new(Kind.Role, name, JobRole.COORDINATOR, rules=rules)


def role_binding(context: Context) -> Object:
    """Gives the Role to the ServiceAccount."""
    name = cluster_names.coordinator_job(context.name)
    account = {"kind": "ServiceAccount", "name": name, "namespace": context.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    return context.new(
        Kind.RoleBinding, name, JobRole.COORDINATOR, roleRef=reference, subjects=[account]
    )


def _rule(resource: str, verb: str, context: Context) -> Object:
    return {
        "apiGroups": [_GROUP],
        "resources": [resource],
        "resourceNames": [context.name],
        "verbs": [verb],
    }
