"""Where checkpoints and journals lie: a claim that is there, or one that is made and kept.

A job whose checkpoints are in an object store has no claim.
Also what else is mounted into the pods.
"""

from disttrain.job import cluster_names, pod_layout
from disttrain.job.checkpoint import AccessMode, CheckpointVolume
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests import keys
from disttrain_operator.manifests.config import RETAIN, DefaultVolume
from disttrain_operator.manifests.context import Context, Object

_LAUNCH = "launch"
_TASK = "task"
_CHECKPOINTS = "checkpoints"
_SHARED_MEMORY = "shared-memory"
_TEMPORARY = "temporary"

_GROUP_READS = 0o440
"""The pod's group, not only root, reads the keys."""


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
    if wanted.when_deleted == RETAIN:
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
        when_deleted=retention.when_deleted.value if retention else default.when_deleted,
    )


def volumes(context: Context, role: Role) -> list[Object]:
    """The volumes of a role's pod; of the keys only the role's own."""
    files = (pod_layout.LAUNCH_KEY, pod_layout.keys_key(role))
    found: list[Object] = [
        {
            "name": _LAUNCH,
            "secret": {
                "secretName": keys.secret_name(context),
                "items": [{"key": file, "path": file} for file in files],
                "defaultMode": _GROUP_READS,
            },
        },
        {"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory"}},
        {"name": _TEMPORARY, "emptyDir": {}},
    ]
    claim = claim_name(context)
    if claim is not None:
        found.append({"name": _CHECKPOINTS, "persistentVolumeClaim": {"claimName": claim}})
    elif context.job.spec.checkpoint.is_object_store:
        # The run's folder of this pod alone: logs of its own, and files on their way.
        found.append({"name": _CHECKPOINTS, "emptyDir": {}})
    source = context.job.spec.task.source
    if source is not None:
        found.append({"name": _TASK, "configMap": {"name": source.config_map}})
    return found


def mounts(context: Context) -> list[Object]:
    places: dict[str, tuple[str, bool]] = {
        _LAUNCH: (str(pod_layout.LAUNCH_FOLDER), True),
        _SHARED_MEMORY: (str(pod_layout.SHARED_MEMORY_FOLDER), False),
        _TEMPORARY: (str(pod_layout.TEMPORARY_FOLDER), False),
    }
    if not is_missing(context):
        places[_CHECKPOINTS] = (str(pod_layout.CHECKPOINTS_FOLDER), False)
    if context.job.spec.task.source is not None:
        places[_TASK] = (str(pod_layout.TASK_FOLDER), True)
    return [_mount(name, path, read_only=fixed) for name, (path, fixed) in places.items()]


def _mount(name: str, path: str, *, read_only: bool) -> Object:
    mount: Object = {"name": name, "mountPath": path}
    return {**mount, "readOnly": True} if read_only else mount
