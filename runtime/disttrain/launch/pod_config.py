"""What a process in a pod is told, from its environment and the job's manifest. Pure."""

from pathlib import Path

from disttrain.job import pod_layout
from disttrain.job.cluster_names import Hosts
from disttrain.job.names import Role
from disttrain.job.roles import Device
from disttrain.job.spec import DistTrainJob
from disttrain.launch.config import LaunchConfig, Supervisor
from disttrain.launch.errors import InvalidLaunchConfig
from disttrain.launch.pod_environment import PodEnvironment
from disttrain.transport.config import CurveKeys, TransportKind

_METRICS_ADDRESS = f"0.0.0.0:{pod_layout.METRICS_PORT}"


def make(
    environment: PodEnvironment, job: DistTrainJob, keys: CurveKeys | None, cores: int
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
    role, addresses = environment.role, environment.addresses
    return LaunchConfig(
        job=job,
        job_uid=uid,
        role=role,
        index=environment.index,
        run_folder=environment.run_folder or Path(pod_layout.run_folder(job.metadata.name, uid)),
        task_folder=environment.task_folder,
        coordinator_address=addresses.coordinator or _coordinator(environment, job),
        listen_address=_listen(environment),
        announce_address=_announced(environment, job),
        transport=TransportKind.TCP,
        threads=_threads(environment, job, cores),
        device=job.spec.replicas.device if role is Role.REPLICA else Device.CPU,
        metrics_address=addresses.metrics or _METRICS_ADDRESS,
        supervisor=Supervisor.NODE,
        place=environment.pod,
        cluster=environment.cluster if role is Role.COORDINATOR else None,
        keys=keys,
    )


def _hosts(environment: PodEnvironment, job: DistTrainJob) -> Hosts:
    namespace = environment.namespace or job.metadata.namespace
    return Hosts(job=job.metadata.name, namespace=namespace or "default")


def _coordinator(environment: PodEnvironment, job: DistTrainJob) -> str:
    return f"tcp://{_hosts(environment, job).coordinator}:{pod_layout.CONTROL_PORT}"


def _listen(environment: PodEnvironment) -> str | None:
    ports = {Role.COORDINATOR: pod_layout.CONTROL_PORT, Role.SHARD: pod_layout.DATA_PORT}
    port = ports.get(environment.role)
    return None if port is None else environment.addresses.listen or f"tcp://*:{port}"


def _announced(environment: PodEnvironment, job: DistTrainJob) -> str | None:
    """Where replicas find a shard; one that listens elsewhere on purpose is found there."""
    given = environment.addresses
    if environment.role is not Role.SHARD or given.announce or given.listen:
        return given.announce
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
