"""What a process in a pod is told, from its environment and the manifest of the job. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from disttrain.job import pod_layout
from disttrain.job.cluster_names import Hosts
from disttrain.job.credentials import Credentials
from disttrain.job.names import Role
from disttrain.job.pod_layout import Variable
from disttrain.job.roles import Device
from disttrain.job.spec import DistTrainJob
from disttrain.launch.config import LOOPBACK, ClusterAccess, LaunchConfig, Supervisor
from disttrain.launch.errors import InvalidLaunchConfig
from disttrain.transport.config import TransportKind

_THREADS = "OMP_NUM_THREADS"
_API_HOST = "KUBERNETES_SERVICE_HOST"
_API_PORT = "KUBERNETES_SERVICE_PORT"
"""Both are in every pod."""

_METRICS_ADDRESS = f"0.0.0.0:{pod_layout.METRICS_PORT}"


@dataclass(frozen=True, kw_only=True, slots=True)
class PodEnvironment:
    """The variables of `pod_layout.Variable`, parsed."""

    role: Role
    index: int | None
    partition: int
    launch_file: Path
    task_folder: Path
    termination_log: Path
    run_folder: Path | None
    """None: the job's own in the shared volume."""
    credentials_file: Path | None
    """None: not said; not read where nothing is encrypted."""
    token_file: Path
    coordinator_address: str
    """Each address replaces what follows from the job's name and the cluster; empty: as there."""
    listen_address: str
    announce_address: str
    metrics_address: str
    pod: str
    """Name of the pod; empty outside of Kubernetes."""
    pod_uid: str
    """Empty likewise."""
    namespace: str
    address: str
    """Of the pod; empty: not known."""
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
        partition=_whole_number(environ, Variable.PARTITION) or 0,
        launch_file=_path(environ, Variable.LAUNCH_FILE) or Path(pod_layout.LAUNCH_FILE),
        task_folder=_path(environ, Variable.TASK_FOLDER) or Path(pod_layout.TASK_FOLDER),
        termination_log=_path(environ, Variable.TERMINATION_LOG)
        or Path(pod_layout.TERMINATION_LOG),
        run_folder=_path(environ, Variable.RUN_FOLDER),
        credentials_file=_path(environ, Variable.CREDENTIALS_FILE),
        token_file=_path(environ, Variable.TOKEN_FILE) or Path(pod_layout.TOKEN_FILE),
        coordinator_address=environ.get(Variable.COORDINATOR_ADDRESS, ""),
        listen_address=environ.get(Variable.LISTEN_ADDRESS, ""),
        announce_address=environ.get(Variable.ANNOUNCE_ADDRESS, ""),
        metrics_address=environ.get(Variable.METRICS_ADDRESS, ""),
        pod=environ.get(Variable.POD_NAME, ""),
        pod_uid=environ.get(Variable.POD_UID, ""),
        namespace=environ.get(Variable.POD_NAMESPACE, ""),
        address=environ.get(Variable.POD_IP, ""),
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


def make(
    environment: PodEnvironment, job: DistTrainJob, credentials: Credentials | None, cores: int
) -> LaunchConfig:
    """The launch config; `cores` are those that this process may use, if nothing says how many.

    Raises InvalidLaunchConfig for a manifest without a uid.
    """
    uid = job.metadata.uid
    if not uid:
        message = (
            f"metadata.uid of {environment.launch_file} is missing; a job's processes are told "
            "apart by it from those of another job of the same name"
        )
        raise InvalidLaunchConfig(message)
    role = environment.role
    _require_partition(environment, job.spec.replicas.processes)
    return LaunchConfig(
        job=job,
        job_uid=uid,
        role=role,
        index=environment.index,
        partition=environment.partition,
        run_folder=environment.run_folder or Path(pod_layout.run_folder(job.metadata.name, uid)),
        task_folder=environment.task_folder,
        coordinator_address=environment.coordinator_address or _coordinator(environment, job),
        listen_address=_listen(environment),
        announce_address=_announced(environment, job),
        group_address=environment.address or LOOPBACK,
        transport=TransportKind.TCP,
        threads=_threads(environment, job, cores),
        device=job.spec.replicas.device if role is Role.REPLICA else Device.CPU,
        metrics_address=environment.metrics_address or _METRICS_ADDRESS,
        supervisor=Supervisor.NODE,
        place=environment.pod,
        cluster=environment.cluster if role is Role.COORDINATOR else None,
        credentials=credentials,
    )


def _require_partition(environment: PodEnvironment, processes: int) -> None:
    if environment.role is not Role.REPLICA:
        processes = 1
    if environment.partition >= processes:
        wanted = f"must be below {processes}, the processes of a {environment.role}"
        raise _invalid(Variable.PARTITION, wanted, str(environment.partition))
    if processes > 1 and environment.index is None:
        raise _invalid(Variable.INDEX, "must be the index of the replica", "")


def _hosts(environment: PodEnvironment, job: DistTrainJob) -> Hosts:
    namespace = environment.namespace or job.metadata.namespace
    return Hosts(job=job.metadata.name, namespace=namespace or "default")


def _coordinator(environment: PodEnvironment, job: DistTrainJob) -> str:
    return f"tcp://{_hosts(environment, job).coordinator}:{pod_layout.CONTROL_PORT}"


def _listen(environment: PodEnvironment) -> str | None:
    ports = {Role.COORDINATOR: pod_layout.CONTROL_PORT, Role.SHARD: pod_layout.DATA_PORT}
    port = ports.get(environment.role)
    return None if port is None else environment.listen_address or f"tcp://*:{port}"


def _announced(environment: PodEnvironment, job: DistTrainJob) -> str | None:
    """Where replicas find a shard; one that listens elsewhere on purpose is found there."""
    given = environment.announce_address
    if environment.role is not Role.SHARD or given or environment.listen_address:
        return given or None
    host = _hosts(environment, job).shard(environment.index or 0)
    return f"tcp://{host}:{pod_layout.DATA_PORT}"


def _threads(environment: PodEnvironment, job: DistTrainJob, cores: int) -> int:
    wanted = {
        Role.COORDINATOR: 1,
        # One applies updates faster than memory delivers them.
        Role.SHARD: job.spec.parameter_server.threads or 1,
        Role.REPLICA: job.spec.replicas.threads or environment.threads or cores,
    }
    return max(1, wanted[environment.role])
