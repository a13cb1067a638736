"""Whose identity a pod may have, and what of the cluster it may claim for itself. Pure."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from disttrain.job import cluster_names
from disttrain.job.names import Role
from disttrain_operator import untrusted
from disttrain_operator.manifests.config import ManifestConfig, PodSecurity
from disttrain_operator.manifests.context import Object

_SYSTEM_PRIORITIES = "system-"
"""They evict everybody's pods."""


def violations(template: Object, role: Role, config: ManifestConfig) -> list[str]:
    """What a template asks for beyond its job's own."""
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
    volumes = untrusted.items(spec.get("volumes"))
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
