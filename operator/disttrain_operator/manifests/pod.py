"""The pod template of a role: ours with its container, the user's merged in, and what must stay."""

import math
from collections.abc import Iterator
from typing import Any

from disttrain.job import cluster_labels, cluster_names, pod_layout
from disttrain.job.names import Role
from disttrain.job.pod_layout import Variable
from disttrain_operator import json_text
from disttrain_operator.manifests import launch_secret, template, volume
from disttrain_operator.manifests.config import PodSecurity
from disttrain_operator.manifests.context import Context, Object
from disttrain_operator.manifests.volume import mounts, volumes

_REQUESTS = {
    Role.COORDINATOR: {"cpu": "100m", "memory": "256Mi"},
    Role.SHARD: {"cpu": "100m", "memory": "256Mi"},
    Role.REPLICA: {"cpu": "250m", "memory": "512Mi"},
}
"""What a small job needs; a template says what a larger one does."""

_PORTS = {
    Role.COORDINATOR: {pod_layout.CONTROL_PORT_NAME: pod_layout.CONTROL_PORT},
    Role.SHARD: {pod_layout.DATA_PORT_NAME: pod_layout.DATA_PORT},
    Role.REPLICA: {},
}

_STARTUP_SECONDS = 600
"""Importing PyTorch and the task, and reading the data, may take minutes on a cold node."""

_LIVENESS_SECONDS = 10
"""Between two questions, and for an answer."""
_MOST_LIVENESS_FAILURES = 8640
"""A day; the API server takes no number without end."""

GRACE_SECONDS = 120
"""A replica finishes its step, a shard saves its values, the coordinator checkpoints."""

UNREACHABLE_SECONDS = 30
"""After so long on a lost node a pod is deleted; the default is five minutes."""

_NO_MESH_LABELS = {"sidecar.istio.io/inject": "false", "istio.io/dataplane-mode": "none"}
_NO_MESH_ANNOTATIONS = {"sidecar.istio.io/inject": "false", "linkerd.io/inject": "disabled"}
"""A mesh would stand between processes that encrypt already, and keep Jobs from ending. Istio looks
at labels, in its ambient mode at the second; older releases and Linkerd at annotations."""


def pod_template(context: Context, role: Role) -> Object:
    ours = template.merge(_ours(context, role), json_text.read(context.config.pod_defaults))
    return _fixed(context, role, template.merge(ours, theirs(context, role)))


def theirs(context: Context, role: Role) -> Object:
    """The user's template; empty if there is none."""
    spec = context.job.spec
    found = {
        Role.COORDINATOR: spec.coordinator.template,
        Role.SHARD: spec.parameter_server.template,
        Role.REPLICA: spec.replicas.template,
    }[role]
    return {} if found is None else {"metadata": found.metadata, "spec": found.spec}


def _ours(context: Context, role: Role) -> Object:
    spec: Object = {
        "containers": [_container(context, role)],
        "volumes": volumes(context),
        "securityContext": {
            **json_text.read(context.config.pod_security_context),
            # Changing the owner of many checkpoints at each start would take minutes.
            "fsGroupChangePolicy": "OnRootMismatch",
        },
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "enableServiceLinks": False,
    }
    if volume.is_for_one_node(context):
        spec["affinity"] = {"podAffinity": _beside_each_other(context)}
    if context.config.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in context.config.image_pull_secrets]
    labels = {**context.labels(role), **_NO_MESH_LABELS}
    metadata = {"labels": labels, "annotations": dict(_NO_MESH_ANNOTATIONS)}
    return {"metadata": metadata, "spec": spec}


def _beside_each_other(context: Context) -> Object:
    """Where the first of the job's pods is all others are, since their volume is there."""
    others = {"matchLabels": cluster_labels.all_pods(context.name, context.uid)}
    term = {"labelSelector": others, "topologyKey": "kubernetes.io/hostname"}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _fixed(context: Context, role: Role, merged: Object) -> Object:
    """Put back what controllers and services find the pods by."""
    metadata = {**merged.get("metadata", {})}
    labels = metadata.get("labels")
    metadata["labels"] = {**(labels if isinstance(labels, dict) else {}), **context.labels(role)}
    spec = {**merged.get("spec", {}), "restartPolicy": "Always"}
    if role is Role.COORDINATOR:
        spec["restartPolicy"] = "OnFailure"
        spec["subdomain"] = cluster_names.service(context.name)
        spec.setdefault("serviceAccountName", cluster_names.COORDINATOR_ACCOUNT)
    # Left away, Kubernetes would mount one.
    spec.setdefault("automountServiceAccountToken", role is Role.COORDINATOR)
    spec["tolerations"] = _with_ours(spec.get("tolerations"))
    spec["containers"] = [_with_threads(each) for each in spec.get("containers") or []]
    if context.config.pod_security is PodSecurity.RESTRICTED:
        for name in ("containers", "initContainers"):
            if spec.get(name):
                spec[name] = [_with_rights(each) for each in spec[name]]
    return {**merged, "metadata": metadata, "spec": spec}


def _with_rights(container: Object) -> Object:
    """Of a container that says nothing of its rights: no more than ours has."""
    if "securityContext" in container:
        return container
    rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {**container, "securityContext": rights}


def _with_threads(each: Object) -> Object:
    if each.get("name") != cluster_names.CONTAINER:
        return each
    variable = _threads_variable(each)
    return each if variable is None else {**each, "env": [*(each.get("env") or []), variable]}


def _with_ours(theirs: list[Object] | None) -> list[Object]:
    """A list replaces a list, and a template that tolerates GPUs says nothing of lost nodes."""
    given = theirs or []
    said = [each.get("key") for each in given]
    if None in said:
        # Whatever the taint: theirs for ever, unless they say otherwise.
        return given
    ours = (_tolerated(state) for state in ("unreachable", "not-ready"))
    return [*given, *(each for each in ours if each["key"] not in said)]


def _tolerated(state: str) -> Object:
    return {
        "key": f"node.kubernetes.io/{state}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": UNREACHABLE_SECONDS,
    }


def _container(context: Context, role: Role) -> Object:
    made: Object = {
        "name": cluster_names.CONTAINER,
        "image": context.job.spec.image or context.config.image,
        "env": _environment(context, role),
        "ports": _ports(role),
        "volumeMounts": mounts(context),
        "resources": {"requests": _REQUESTS[role]},
        "startupProbe": _probe(pod_layout.HEALTH_PATH, period=2, failures=_STARTUP_SECONDS // 2),
        "readinessProbe": _probe(pod_layout.READY_PATH, period=5, failures=3),
        "livenessProbe": _liveness(context),
        # Where a process wrote nothing, the end of its log says what it died of.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if context.config.image_pull_policy:
        made["imagePullPolicy"] = context.config.image_pull_policy
    return made


def _threads_variable(container: Object) -> Object | None:
    """OMP_NUM_THREADS from the CPU limit, rounded up; None without one, or if it is given.

    Without a limit the kubelet would put in the cores of the whole node.
    """
    limits = (container.get("resources") or {}).get("limits") or {}
    given = {variable.get("name") for variable in container.get("env") or []}
    if "cpu" not in limits or "OMP_NUM_THREADS" in given:
        return None
    source = {"containerName": container["name"], "resource": "limits.cpu", "divisor": "1"}
    return {"name": "OMP_NUM_THREADS", "valueFrom": {"resourceFieldRef": source}}


def _environment(context: Context, role: Role) -> list[Object]:
    values: dict[str, str] = {
        Variable.ROLE: role.value,
        Variable.RUN_FOLDER: str(pod_layout.run_folder(context.name, context.uid)),
        Variable.LAUNCH_FILE: str(pod_layout.LAUNCH_FILE),
    }
    if launch_secret.needs_certificates(context):
        values[Variable.CREDENTIALS_FILE] = str(pod_layout.TRUST_FILE)
    values["HOME"] = str(pod_layout.TEMPORARY_FOLDER)
    if context.job.spec.task.source is not None:
        values[Variable.TASK_FOLDER] = str(pod_layout.TASK_FOLDER)
    fields = {
        Variable.POD_NAME: "metadata.name",
        Variable.POD_UID: "metadata.uid",
        Variable.POD_NAMESPACE: "metadata.namespace",
        Variable.POD_IP: "status.podIP",
    }
    fields |= {name: f"metadata.labels['{label}']" for name, label in _labels(context, role)}
    plain: list[Object] = [{"name": str(name), "value": value} for name, value in values.items()]
    return plain + [_from_field(name, path) for name, path in fields.items()]


def _labels(context: Context, role: Role) -> Iterator[tuple[Variable, str]]:
    """Variables that say which process of its role a pod is, and the labels that they come from."""
    if role is Role.SHARD:
        yield Variable.INDEX, cluster_labels.POD_INDEX
    elif role is Role.REPLICA and context.processes > 1:
        yield Variable.INDEX, cluster_labels.REPLICA_INDEX
        yield Variable.PARTITION, cluster_labels.POD_INDEX


def _from_field(name: str, path: str) -> Object:
    return {"name": str(name), "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _ports(role: Role) -> list[Object]:
    ports = {**_PORTS[role], pod_layout.METRICS_PORT_NAME: pod_layout.METRICS_PORT}
    return [{"name": name, "containerPort": number} for name, number in ports.items()]


def _liveness(context: Context) -> dict[str, Any]:
    """Ends whoever answers nothing, or that its main loop hangs, for as long as a member is missed.

    A replica's loop is in the user's code, for which it has a watchdog of its own.
    """
    patience = context.job.spec.coordinator.member_timeout_seconds
    failures = min(max(3, math.ceil(patience / _LIVENESS_SECONDS)), _MOST_LIVENESS_FAILURES)
    probe = _probe(pod_layout.HEALTH_PATH, period=_LIVENESS_SECONDS, failures=failures)
    # A step that keeps the interpreter to itself for seconds is no hang.
    return probe | {"timeoutSeconds": _LIVENESS_SECONDS}


def _probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": pod_layout.METRICS_PORT_NAME},
        "periodSeconds": period,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }
