"""The ConfigMap with the manifest that every process reads."""

import json
from typing import Any

from disttrain.job import cluster_names, effective, pod_layout
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.context import Context, Object

_NOT_FOR_PROCESSES = (
    "image",
    "suspend",
    "activeDeadlineSeconds",
    "pendingDeadlineSeconds",
    "ttlSecondsAfterFinished",
    "managedBy",
)
_ROLES = ("coordinator", "parameterServer", "replicas")


def launch_config_map(context: Context) -> Object:
    """The manifest with its defaults, without what only the operator reads."""
    manifest: Any = effective.manifest(context.job)
    metadata = {"name": context.name, "namespace": context.namespace, "uid": context.uid}
    spec = {
        name: value for name, value in manifest["spec"].items() if name not in _NOT_FOR_PROCESSES
    }
    for role in _ROLES:
        spec[role] = {name: value for name, value in spec[role].items() if name != "template"}
    text = json.dumps({**manifest, "metadata": metadata, "spec": spec}, indent=1, sort_keys=True)
    name = cluster_names.launch_config_map(context.name)
    return context.new(Kind.ConfigMap, name, data={pod_layout.LAUNCH_KEY: text})
