"""What the environment of a pod says about its process. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from disttrain.job import pod_layout
from disttrain.job.names import Role
from disttrain.job.pod_layout import Variable
from disttrain.launch.config import ClusterAccess
from disttrain.launch.errors import InvalidLaunchConfig

_THREADS = "OMP_NUM_THREADS"
_API_HOST = "KUBERNETES_SERVICE_HOST"
_API_PORT = "KUBERNETES_SERVICE_PORT"
"""Both are in every pod."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Addresses:
    """Those that replace what follows from the job's name and the cluster; None: as there."""

    coordinator: str | None = None
    listen: str | None = None
    announce: str | None = None
    metrics: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PodEnvironment:
    """The variables of `pod_layout.Variable`, parsed."""

    role: Role
    index: int | None
    launch_file: Path
    task_folder: Path
    termination_log: Path
    run_folder: Path | None
    """None: the job's own in the shared volume."""
    keys_file: Path | None
    """None: nothing is encrypted."""
    addresses: Addresses
    pod: str
    """Name of the pod; empty outside of Kubernetes."""
    namespace: str
    cluster: ClusterAccess | None
    """None: this is no pod."""
    threads: int | None
    """Threads for computing that the pod's CPU limit allows; None: not said."""


def read(environ: Mapping[str, str]) -> PodEnvironment:
    """The environment's meaning. Raises InvalidLaunchConfig, which names the variable."""
    role = _role(environ)
    return PodEnvironment(
        role=role,
        index=_index(environ, role),
        launch_file=_path(environ, Variable.LAUNCH_FILE) or Path(pod_layout.LAUNCH_FILE),
        task_folder=_path(environ, Variable.TASK_FOLDER) or Path(pod_layout.TASK_FOLDER),
        termination_log=_path(environ, Variable.TERMINATION_LOG)
        or Path(pod_layout.TERMINATION_LOG),
        run_folder=_path(environ, Variable.RUN_FOLDER),
        keys_file=_path(environ, Variable.KEYS_FILE),
        addresses=Addresses(
            coordinator=environ.get(Variable.COORDINATOR_ADDRESS) or None,
            listen=environ.get(Variable.LISTEN_ADDRESS) or None,
            announce=environ.get(Variable.ANNOUNCE_ADDRESS) or None,
            metrics=environ.get(Variable.METRICS_ADDRESS) or None,
        ),
        pod=environ.get(Variable.POD_NAME, ""),
        namespace=environ.get(Variable.POD_NAMESPACE, ""),
        cluster=_cluster(environ),
        threads=_whole_number(environ, _THREADS),
    )


def _role(environ: Mapping[str, str]) -> Role:
    given = environ.get(Variable.ROLE, "")
    if given not in set(Role):
        raise _invalid(Variable.ROLE, f"must be one of {', '.join(Role)}", given)
    return Role(given)


def _index(environ: Mapping[str, str], role: Role) -> int | None:
    found = _whole_number(environ, Variable.INDEX)
    if role is Role.SHARD and found is None:
        raise _invalid(Variable.INDEX, "must be the index of the shard", "")
    return 0 if role is Role.COORDINATOR else found


def _cluster(environ: Mapping[str, str]) -> ClusterAccess | None:
    host, port = environ.get(_API_HOST, ""), environ.get(_API_PORT, "")
    if not host or not port:
        return None
    return ClusterAccess(server=f"https://{f'[{host}]' if ':' in host else host}:{port}")


def _whole_number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    if not text:
        return None
    if not text.isdecimal():
        raise _invalid(name, "must be a whole number", text)
    return int(text)


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    text = environ.get(name, "")
    return Path(text).absolute() if text else None


def _invalid(name: str, wanted: str, given: str) -> InvalidLaunchConfig:
    return InvalidLaunchConfig(f"{name} {wanted}, got {given!r}")
