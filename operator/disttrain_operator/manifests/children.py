"""All objects of a job, and those that it shares with the other jobs of its namespace.

The pods are kept by a StatefulSet of shards, a ReplicaSet of replicas, and the coordinator's Job.
"""

from dataclasses import dataclass, replace

from disttrain.job import cluster_labels, cluster_names, pod_layout
from disttrain.job.names import Role
from disttrain_operator.kinds import WORKLOADS, Kind
from disttrain_operator.manifests import access, volume
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.manifests.context import Context, Object, Scale
from disttrain_operator.manifests.pod import pod_template

ChildKey = tuple[Kind, str]
"""What tells a job's children apart: kind and name."""

_PORTS = {
    pod_layout.CONTROL_PORT_NAME: pod_layout.CONTROL_PORT,
    pod_layout.DATA_PORT_NAME: pod_layout.DATA_PORT,
    pod_layout.METRICS_PORT_NAME: pod_layout.METRICS_PORT,
}

_NEVER_GIVE_UP = 2**31 - 1
"""Only the operator counts restarts."""


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
        _service(context),
        shard_budget(context),
        _shards(context, scale),
        _replicas(context, scale),
        _coordinator(context, scale),
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


def _shards(context: Context, scale: Scale) -> Object:
    """The StatefulSet: all shards start at once, each under a name of its own."""
    name = cluster_names.shard_set(context.name)
    spec = {
        "replicas": scale.shards,
        "serviceName": cluster_names.service(context.name),
        "podManagementPolicy": "Parallel",
        # Nothing but its end or its node's takes a shard away.
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 1,
        **_pods(context, Role.SHARD),
    }
    return context.new(Kind.StatefulSet, name, Role.SHARD, spec=spec)


def _replicas(context: Context, scale: Scale) -> Object:
    """The ReplicaSet: replicas are alike, any of them may go, and their template never changes."""
    name = cluster_names.replica_set(context.name)
    spec = {"replicas": scale.replicas, **_pods(context, Role.REPLICA)}
    return context.new(Kind.ReplicaSet, name, Role.REPLICA, spec=spec)


def _coordinator(context: Context, scale: Scale) -> Object:
    """The Job: one pod, never two at once, until it has decided how the job ends."""
    spec = {
        "completionMode": "Indexed",  # Gives the pod a host name that stays.
        "completions": 1,
        "parallelism": 1,
        "suspend": not scale.coordinator,
        "backoffLimit": _NEVER_GIVE_UP,
        # The default starts the next pod while the one before is still ending.
        "podReplacementPolicy": "Failed",
        "template": pod_template(context, Role.COORDINATOR),
    }
    name = cluster_names.coordinator_job(context.name)
    return context.new(Kind.Job, name, Role.COORDINATOR, spec=spec)


def _pods(context: Context, role: Role) -> Object:
    selected = cluster_labels.pods_of(context.name, context.uid, role)
    return {"selector": {"matchLabels": selected}, "template": pod_template(context, role)}


def _service(context: Context) -> Object:
    spec = {
        "clusterIP": "None",
        # Processes look for each other while they become ready.
        "publishNotReadyAddresses": True,
        "selector": cluster_labels.all_pods(context.name, context.uid),
        "ports": [{"name": name, "port": port} for name, port in _PORTS.items()],
    }
    return context.new(Kind.Service, cluster_names.service(context.name), spec=spec)


def shard_budget(context: Context) -> Object | None:
    """The budget of several shards; one that is not ready never holds up a drain."""
    if context.job.spec.shards <= 1:
        return None
    selected = cluster_labels.pods_of(context.name, context.uid, Role.SHARD)
    spec = {
        # Pods that share a node's volume leave it together, or a drain waits for ever.
        "maxUnavailable": "100%" if volume.is_for_one_node(context) else 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": selected},
    }
    name = cluster_names.shard_set(context.name)
    return context.new(Kind.PodDisruptionBudget, name, Role.SHARD, spec=spec)
