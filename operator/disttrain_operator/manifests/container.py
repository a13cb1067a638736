"""The container that runs a role: environment, mounts, ports, probes, rights."""

import math
from typing import Any

from disttrain.job import cluster_labels, cluster_names, pod_layout
from disttrain.job.names import Role
from disttrain.job.pod_layout import Variable
from disttrain_operator.manifests.context import Context, Object
from disttrain_operator.manifests.volume import mounts

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


def container(context: Context, role: Role) -> Object:
    made: Object = {
        "name": cluster_names.CONTAINER,
        "image": context.job.spec.image or context.config.image,
        "env": _environment(context, role),
        "ports": _ports(role),
        "volumeMounts": mounts(context, role),
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


def threads_variable(container: Object) -> Object | None:
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
    values = {
        Variable.ROLE: role.value,
        Variable.RUN_FOLDER: str(pod_layout.run_folder(context.name, context.uid)),
        Variable.LAUNCH_FILE: str(pod_layout.LAUNCH_FILE),
        Variable.CREDENTIALS_FILE: str(pod_layout.credentials_file(role)),
        "HOME": str(pod_layout.TEMPORARY_FOLDER),
    }
    if context.job.spec.task.source is not None:
        values[Variable.TASK_FOLDER] = str(pod_layout.TASK_FOLDER)
    fields = {
        Variable.POD_NAME: "metadata.name",
        Variable.POD_NAMESPACE: "metadata.namespace",
        Variable.POD_IP: "status.podIP",
    }
    if role is Role.SHARD:
        fields[Variable.INDEX] = f"metadata.labels['{cluster_labels.POD_INDEX}']"
    plain: list[Object] = [{"name": str(name), "value": value} for name, value in values.items()]
    return plain + [_from_field(name, path) for name, path in fields.items()]


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
