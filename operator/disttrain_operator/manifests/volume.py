"""Where checkpoints and journals lie: a claim that is there, or one that is made and kept.

A job whose checkpoints are in an object store has no claim.
Also what else is mounted into the pods.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from disttrain.job import cluster_names, pod_layout
from disttrain.job.checkpoint import AccessMode, CheckpointVolume, WhenDeleted
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests import launch_secret
from disttrain_operator.manifests.config import DefaultVolume
from disttrain_operator.manifests.context import Context, Object

_GROUP_READS = 0o440
"""The pod's group, not only root, reads what the pod is told."""

IDENTITY = "identity"
"""The volume of the pod's token."""
TOKEN_SECONDS = 3600
"""Of a token's lifetime; the kubelet renews it at four fifths of that."""


class _Volume(NamedTuple):
    """A volume of a pod, and where its container has it."""

    name: str
    source: Object
    folder: PurePosixPath
    read_only: bool = False


def claim_name(context: Context) -> str | None:
    """The claim that all pods mount; None if there is no such claim."""
    volume = context.job.spec.checkpoint.volume
    if volume is not None and volume.claim_name is not None:
        return volume.claim_name
    return cluster_names.checkpoints_claim(context.name) if _wanted(context) else None


def is_missing(context: Context) -> bool:
    return claim_name(context) is None and not context.job.spec.checkpoint.is_object_store


def is_for_one_node(context: Context) -> bool:
    """Whether the claim that is made can be mounted on a single node at a time."""
    wanted = _wanted(context)
    return wanted is not None and set(wanted.access_modes) == {AccessMode.READ_WRITE_ONCE.value}


def claim(context: Context) -> Object | None:
    """The claim that is made. It has no owner, unless it shall be deleted with its job."""
    wanted = _wanted(context)
    if wanted is None:
        return None
    spec: Object = {
        "accessModes": list(wanted.access_modes),
        "resources": {"requests": {"storage": wanted.size}},
    }
    if wanted.storage_class is not None:
        spec["storageClassName"] = wanted.storage_class
    name = cluster_names.checkpoints_claim(context.name)
    made = context.new(Kind.PersistentVolumeClaim, name, spec=spec)
    if wanted.when_deleted is WhenDeleted.RETAIN:
        del made["metadata"]["ownerReferences"]
    return made


def _wanted(context: Context) -> DefaultVolume | None:
    checkpoint = context.job.spec.checkpoint
    if checkpoint.is_object_store:
        return None
    if checkpoint.volume is None:
        return context.config.default_volume
    default = context.config.default_volume or DefaultVolume()
    return _described(checkpoint.volume, default)


def _described(volume: CheckpointVolume, default: DefaultVolume) -> DefaultVolume | None:
    if volume.size is None:
        return None
    modes, retention = volume.access_modes, volume.retention_policy
    return DefaultVolume(
        size=volume.size,
        storage_class=volume.storage_class_name,
        access_modes=tuple(mode.value for mode in modes) if modes else default.access_modes,
        when_deleted=retention.when_deleted if retention else default.when_deleted,
    )


def volumes(context: Context) -> list[Object]:
    return [{"name": each.name, **each.source} for each in _volumes(context)]


def mounts(context: Context) -> list[Object]:
    return [_mount(each) for each in _volumes(context)]


def _mount(volume: _Volume) -> Object:
    mount: Object = {"name": volume.name, "mountPath": str(volume.folder)}
    return {**mount, "readOnly": True} if volume.read_only else mount


def token() -> Object:
    """The pod's own token, which nobody but the operator takes: it is no account's at the API."""
    source = {
        "audience": pod_layout.TOKEN_AUDIENCE,
        "expirationSeconds": TOKEN_SECONDS,
        "path": pod_layout.TOKEN_KEY,
    }
    return {
        "projected": {
            "sources": [{"serviceAccountToken": source}],
            "defaultMode": _GROUP_READS,
        }
    }


def _volumes(context: Context) -> Iterator[_Volume]:
    is_encrypted = launch_secret.needs_certificates(context)
    files = [pod_layout.LAUNCH_KEY, *([pod_layout.TRUST_KEY] if is_encrypted else [])]
    secret = {
        "secretName": launch_secret.secret_name(context),
        "items": [{"key": file, "path": file} for file in files],
        "defaultMode": _GROUP_READS,
    }
    yield _Volume("launch", {"secret": secret}, pod_layout.LAUNCH_FOLDER, read_only=True)
    if is_encrypted:
        yield _Volume(IDENTITY, token(), pod_layout.TOKEN_FOLDER, read_only=True)
    memory = {"emptyDir": {"medium": "Memory"}}
    yield _Volume("shared-memory", memory, pod_layout.SHARED_MEMORY_FOLDER)
    yield _Volume("temporary", {"emptyDir": {}}, pod_layout.TEMPORARY_FOLDER)
    if not is_missing(context):
        # With an object store the run's folder of this pod alone: logs, and files on their way.
        claim = claim_name(context)
        kept: Object = {"emptyDir": {}}
        if claim is not None:
            kept = {"persistentVolumeClaim": {"claimName": claim}}
        yield _Volume("checkpoints", kept, pod_layout.CHECKPOINTS_FOLDER)
    source = context.job.spec.task.source
    if source is not None:
        task = {"configMap": {"name": source.config_map}}
        yield _Volume("task", task, pod_layout.TASK_FOLDER, read_only=True)
