"""All objects of a job, and those that it shares with the other jobs of its namespace."""

from dataclasses import dataclass, replace

from disttrain_operator.kinds import WORKLOADS, Kind
from disttrain_operator.manifests import access, volume, workloads
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.manifests.context import Context, Object, Scale

ChildKey = tuple[Kind, str]
"""What tells a job's children apart: kind and name."""


@dataclass(frozen=True, slots=True)
class Child:
    """One object that a job shall have."""

    kind: Kind
    name: str
    body: Object

    @property
    def key(self) -> ChildKey:
        return self.kind, self.name


def of(body: Object) -> Child:
    return Child(Kind[body["kind"]], body["metadata"]["name"], body)


def children(context: Context, scale: Scale) -> list[Child]:
    """All that is the job's own, but for the Secret, whose content is random."""
    bodies = [
        volume.claim(context),
        workloads.service(context),
        workloads.shard_budget(context),
        workloads.shards(context, scale),
        workloads.replicas(context, scale),
        workloads.coordinator(context, scale),
    ]
    return [of(body) for body in bodies if body is not None]


def common(namespace: str, config: ManifestConfig) -> list[Child]:
    """What the jobs of a namespace share; it stays when they are gone."""
    bodies = (
        access.service_account(namespace),
        access.role_binding(namespace),
        access.network_policy(namespace, config),
    )
    return [of(body) for body in bodies]


def at_scale(child: Child, scale: Scale) -> Child:
    if child.kind not in WORKLOADS:
        return child
    wanted = scale.of(child.kind)
    changed = {"suspend": not wanted} if child.kind is Kind.Job else {"replicas": wanted}
    return replace(child, body={**child.body, "spec": {**child.body["spec"], **changed}})
