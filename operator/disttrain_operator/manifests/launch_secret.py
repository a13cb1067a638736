"""The Secret with the manifest, and of whom the pods get their certificates where they need any."""

import json
from typing import Any

from disttrain.job import cluster_names, credentials, defaults, pod_layout
from disttrain.job.credentials import Trust
from disttrain.job.transport import Encryption
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
_WITH_TEMPLATES = ("coordinator", "parameterServer", "replicas")


def launch_file(context: Context) -> str:
    """The manifest with its defaults, without what only the operator reads.

    The number of replicas is that of the beginning: it is written once, and they may be scaled.
    """
    manifest: Any = defaults.written_out(context.job)
    metadata = {"name": context.name, "namespace": context.namespace, "uid": context.uid}
    spec = {
        name: value for name, value in manifest["spec"].items() if name not in _NOT_FOR_PROCESSES
    }
    for role in _WITH_TEMPLATES:
        spec[role] = {name: value for name, value in spec[role].items() if name != "template"}
    return json.dumps({**manifest, "metadata": metadata, "spec": spec}, indent=1, sort_keys=True)


def secret_name(context: Context) -> str:
    return cluster_names.launch_secret(context.name, context.uid)


def needs_certificates(context: Context) -> bool:
    """Whether the pods of a job show certificates to each other."""
    return context.job.spec.transport.is_encrypted


def needs_certificates_by(launch: str) -> bool:
    """The same of pods that are there, by the manifest that they read.

    Whatever does not say that nothing is encrypted needs them.
    """
    try:
        transport = json.loads(launch)["spec"]["transport"]
    except (ValueError, LookupError, TypeError):
        return True
    return not (isinstance(transport, dict) and transport.get("encryption") == Encryption.NONE)


def secret(context: Context, trust: Trust | None, launch: str) -> Object:
    """The Secret, which is not immutable: a kubelet would show a deleted one to new pods, too.

    It forgets an immutable one when no pod of the job is left on the node, and restarts overlap.
    `trust`: None where nothing is encrypted. `launch`: the manifest as its processes read it.
    """
    contents = {pod_layout.LAUNCH_KEY: launch}
    if trust is not None:
        contents[pod_layout.TRUST_KEY] = credentials.encode(trust).decode()
    return context.new(Kind.Secret, secret_name(context), stringData=contents)
