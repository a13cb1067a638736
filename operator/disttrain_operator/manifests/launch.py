"""The manifest as every process of a job reads it."""

import json
from typing import Any

from disttrain.job import effective
from disttrain_operator.manifests.context import Context

_NOT_FOR_PROCESSES = (
    "image",
    "suspend",
    "activeDeadlineSeconds",
    "pendingDeadlineSeconds",
    "ttlSecondsAfterFinished",
    "managedBy",
)
_ROLES = ("coordinator", "parameterServer", "replicas")


def launch_file(context: Context) -> str:
    """The manifest with its defaults, without what only the operator reads.

    The number of replicas is that of the beginning: it is written once, and they may be scaled.
    """
    manifest: Any = effective.manifest(context.job)
    metadata = {"name": context.name, "namespace": context.namespace, "uid": context.uid}
    spec = {
        name: value for name, value in manifest["spec"].items() if name not in _NOT_FOR_PROCESSES
    }
    for role in _ROLES:
        spec[role] = {name: value for name, value in spec[role].items() if name != "template"}
    return json.dumps({**manifest, "metadata": metadata, "spec": spec}, indent=1, sort_keys=True)
