"""All objects of a job, each with a fingerprint of what is wanted of it."""

import hashlib
from dataclasses import dataclass

from disttrain_operator import json_text
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests import (
    access,
    disruption,
    launch,
    network,
    service,
    volume,
    workloads,
)
from disttrain_operator.manifests.context import Context, Object, Scale

FINGERPRINT = "disttrain.dev/fingerprint"
"""Annotation of a child: what was wanted when it was written last."""

_SCALED = {"replicas", "suspend"}
"""Fields of a workload's spec that change while it stays the same workload."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One object that a job shall have, without its body: small enough to keep of every job."""

    kind: Kind
    name: str
    fingerprint: str

    @property
    def key(self) -> tuple[Kind, str]:
        """What tells a job's children apart."""
        return self.kind, self.name


@dataclass(frozen=True, slots=True)
class Child(Expected):
    """One object that a job shall have."""

    body: Object


def children(context: Context, scale: Scale) -> list[Child]:
    """Everything but the Secret, whose content is random."""
    bodies = [
        access.service_account(context),
        access.role(context),
        access.role_binding(context),
        launch.launch_config_map(context),
        service.service(context),
        disruption.shard_budget(context),
        network.network_policy(context),
        workloads.shards(context, scale),
        workloads.coordinator(context, scale),
        workloads.replicas(context, scale),
    ]
    claim = volume.claim(context)
    return [_child(body) for body in ([claim] if claim else []) + bodies]


def at_scale(child: Child, scale: Scale) -> Child:
    """The same child at another scale; its fingerprint does not depend on it."""
    fields: dict[Kind, Object] = {
        Kind.StatefulSet: {"replicas": scale.shards},
        Kind.Deployment: {"replicas": scale.replicas},
        Kind.Job: {"suspend": not scale.coordinator},
    }
    changed = fields.get(child.kind)
    if changed is None:
        return child
    body = {**child.body, "spec": {**child.body["spec"], **changed}}
    return Child(child.kind, child.name, child.fingerprint, body)


def _child(body: Object) -> Child:
    fingerprint = _fingerprint(body)
    metadata = {**body["metadata"], "annotations": {FINGERPRINT: fingerprint}}
    kind = Kind[body["kind"]]
    return Child(kind, metadata["name"], fingerprint, {**body, "metadata": metadata})


def _fingerprint(body: Object) -> str:
    wanted = dict(body)
    if isinstance(spec := body.get("spec"), dict):
        wanted["spec"] = {name: value for name, value in spec.items() if name not in _SCALED}
    return hashlib.sha256(json_text.write(wanted, in_order=True)).hexdigest()[:16]
