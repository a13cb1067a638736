"""What is mounted into the pods, and where."""

from disttrain.job import pod_layout
from disttrain.job.names import Role
from disttrain_operator.manifests import keys, volume
from disttrain_operator.manifests.context import Context, Object

_LAUNCH = "launch"
_TASK = "task"
_CHECKPOINTS = "checkpoints"
_SHARED_MEMORY = "shared-memory"
_TEMPORARY = "temporary"

_GROUP_READS = 0o440
"""The pod's group, not only root, reads the keys."""


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
    claim = volume.claim_name(context)
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
    if not volume.is_missing(context):
        places[_CHECKPOINTS] = (str(pod_layout.CHECKPOINTS_FOLDER), False)
    if context.job.spec.task.source is not None:
        places[_TASK] = (str(pod_layout.TASK_FOLDER), True)
    return [_mount(name, path, read_only=fixed) for name, (path, fixed) in places.items()]


def _mount(name: str, path: str, *, read_only: bool) -> Object:
    mount: Object = {"name": name, "mountPath": path}
    return {**mount, "readOnly": True} if read_only else mount
