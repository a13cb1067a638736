"""All objects of a job, and those that it shares with the other jobs of its namespace.

The pods are kept by a StatefulSet of shards, what keeps the replicas, and the coordinator's Job.
Replicas are kept by one ReplicaSet, or each by a StatefulSet if it has several processes. Such
StatefulSets differ in name and label alone, so that one of them stands for all in what is stored,
and replicas are added and removed as wholes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from disttrain.job import cluster_labels, cluster_names, pod_layout
from disttrain.job.names import Role
from disttrain_operator import untrusted, workload
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests import access, template, volume
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.manifests.context import Context, Object, Scale
from disttrain_operator.manifests.pod import pod_template
from disttrain_operator.workload import Workload

ChildKey = tuple[Kind, str]
"""What tells a job's children apart: kind and name."""

_PORTS = {
    pod_layout.CONTROL_PORT_NAME: pod_layout.CONTROL_PORT,
    pod_layout.DATA_PORT_NAME: pod_layout.DATA_PORT,
    pod_layout.METRICS_PORT_NAME: pod_layout.METRICS_PORT,
}

_NEVER_GIVE_UP = 2**31 - 1
"""Only the operator counts restarts."""

_FIRST_REPLICA = Workload(Role.REPLICA, 0)


@dataclass(frozen=True, slots=True)
class Child:
    """One object that a job shall have."""

    kind: Kind
    name: str
    body: Object

    @property
    def key(self) -> ChildKey:
        return self.kind, self.name

    @property
    def job(self) -> str:
        """The name of its job, by its label."""
        labels = untrusted.mapping(self.body, "metadata", "labels")
        return str(labels.get(cluster_labels.INSTANCE, ""))

    @property
    def workload(self) -> Workload | None:
        """Whose pods it makes; None for what makes none."""
        return workload.of(self.kind, self.job, self.name)


def of(body: Object) -> Child:
    return Child(Kind[body["kind"]], body["metadata"]["name"], body)


def children(context: Context, scale: Scale) -> list[Child]:
    """All that is the job's own, but for the Secret, whose content is random.

    Of replicas of several processes the first one stands for all.
    """
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
    wanted = None if child.workload is None else scale.pods(child.workload)
    if wanted is None:
        return child
    changed = {"suspend": not wanted} if child.kind is Kind.Job else {"replicas": wanted}
    return replace(child, body={**child.body, "spec": {**child.body["spec"], **changed}})


def keys(child: Child, num_replicas: int) -> Iterator[tuple[ChildKey, int | None]]:
    """The key of a child; of what keeps one replica of several processes those of each replica."""
    if child.workload is None or child.workload.group is None:
        yield child.key, None
        return
    for index in range(num_replicas):
        yield (child.kind, cluster_names.replica_group_set(child.job, index)), index


def of_replica(child: Child, replica_index: int | None) -> Child:
    """A child; what keeps one replica of several processes, as it is for another one."""
    if replica_index is None:
        return child
    return of(_for_replica(child.body, child.job, replica_index))


def _shards(context: Context, scale: Scale) -> Object:
    """The StatefulSet: all shards start at once, each under a name of its own."""
    name = cluster_names.shard_set(context.name)
    spec = _set_spec(context, scale.shards) | _pods(context, Role.SHARD)
    return context.new(Kind.StatefulSet, name, Role.SHARD, spec=spec)


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


def _replicas(context: Context, scale: Scale) -> Object:
    """What keeps all replicas, or the first one if each has several processes."""
    if context.processes > 1:
        return _first_replica(context, scale)
    return _replica_set(context, scale)


def _for_replica(keeper: Object, job: str, replica_index: int) -> Object:
    """What the keeper of one replica of several processes is for another one."""
    label = {"labels": {cluster_labels.REPLICA_INDEX: str(replica_index)}}
    own = {
        "metadata": {"name": cluster_names.replica_group_set(job, replica_index), **label},
        "spec": {"selector": {"matchLabels": label["labels"]}, "template": {"metadata": label}},
    }
    return template.merge(keeper, own)


def _replica_set(context: Context, scale: Scale) -> Object:
    """The ReplicaSet: replicas are alike, any of them may go, and their template never changes."""
    name = cluster_names.replica_set(context.name)
    spec = {"replicas": scale.replicas, **_pods(context, Role.REPLICA)}
    return context.new(Kind.ReplicaSet, name, Role.REPLICA, spec=spec)


def _first_replica(context: Context, scale: Scale) -> Object:
    """The StatefulSet of the first replica: its processes start at once, each under its name."""
    spec = _set_spec(context, scale.pods(_FIRST_REPLICA)) | _pods(context, Role.REPLICA)
    made = context.new(Kind.StatefulSet, _FIRST_REPLICA.name(context.name), Role.REPLICA, spec=spec)
    return _for_replica(made, context.name, 0)


def _set_spec(context: Context, num_pods: int | None) -> Object:
    """What all StatefulSets of a job have in common."""
    return {
        "replicas": num_pods,
        "serviceName": cluster_names.service(context.name),
        "podManagementPolicy": "Parallel",
        # Nothing but its end or its node's takes a process away.
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 1,
    }


def _pods(context: Context, role: Role) -> Object:
    selected = cluster_labels.pods_of(context.name, context.uid, role)
    return {"selector": {"matchLabels": selected}, "template": pod_template(context, role)}
