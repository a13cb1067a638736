"""Which processes a job has on one machine, and what each is told. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from disttrain.job import identity, names
from disttrain.job.credentials import Credentials
from disttrain.job.identity import Identity
from disttrain.job.names import LAUNCHER, ProcessName, Role
from disttrain.job.roles import Device
from disttrain.job.spec import DistTrainJob, Spec
from disttrain.job.transport import TransportChoice
from disttrain.launch.config import LaunchConfig, process_name
from disttrain.launch.errors import NotJoinable
from disttrain.launch.run_folder import Reach
from disttrain.launcher.fork_messages import Preload
from disttrain.transport.config import TransportKind

CORES_PER_SHARD_CORE = 4
"""One core in four at most is set aside for shards, since they mostly wait."""

ANY_PORT = "tcp://127.0.0.1:0"

COMPILER = "torch._dynamo"
"""The first optimizer of torch.optim, and the first model that is made without values, import it:
3 seconds of a core and 150 MB."""


@dataclass(frozen=True, slots=True)
class Threads:
    """Compute threads of one process, by role."""

    shard: int
    replica: int


def share_out(spec: Spec, cores: int) -> Threads:
    """The threads of each shard and replica on a machine with so many cores.

    What the manifest says holds. Otherwise a shard has one thread, since one applies updates faster
    than memory delivers them, and the processes of all replicas divide the cores, each with at
    least one thread.
    """
    replicas = spec.replicas.count * spec.replicas.processes
    set_aside = min(spec.shards, cores // CORES_PER_SHARD_CORE)
    return Threads(
        shard=spec.parameter_server.threads or 1,
        replica=spec.replicas.threads or max(1, (cores - set_aside) // replicas),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a job runs on this machine."""

    run_folder: Path
    task_folder: Path
    job_uid: str
    sockets: Path
    """Short private folder for Unix sockets."""
    coordinator_port: int
    """Reserved on 127.0.0.1 for a job over TCP, kept over the coordinator's restarts; else 0."""
    cores: int
    resume_from: Path | None = None
    credentials: Mapping[str, Credentials] = field(default_factory=dict, repr=False)
    """By process, for a job over TCP, whose ports every user of the machine reaches."""
    reach: Reach | None = None
    """None: nobody of another machine joins."""


def process_names(job: DistTrainJob) -> list[str]:
    """The names of all processes, in the order in which they are started."""
    shards = [names.shard_name(index) for index in range(job.spec.shards)]
    partitions = job.spec.replicas.processes
    replicas = [
        names.member_name(index, partition, partitions)
        for index in range(job.spec.replicas.count)
        for partition in range(partitions)
    ]
    return [names.COORDINATOR, *shards, *replicas]


def preload(spec: Spec, task_folder: Path) -> Preload:
    """What is imported once for all replicas of this machine."""
    makes_optimizers = spec.strategy.rule.makes_torch_optimizers
    is_divided = spec.replicas.partitions > 1
    libraries = (COMPILER,) if makes_optimizers or is_divided else ()
    return Preload(libraries=libraries, module=spec.task.module, folder=str(task_folder))


def transport_kind(job: DistTrainJob) -> TransportKind:
    tcp = job.spec.transport.kind is TransportChoice.TCP
    return TransportKind.TCP if tcp else TransportKind.SHARED_MEMORY


def needs_credentials(job: DistTrainJob) -> bool:
    """Unix sockets lie in a folder of this user alone; every user reaches a port."""
    return job.spec.transport.is_encrypted and transport_kind(job) is TransportKind.TCP


def plan(job: DistTrainJob, place: Place) -> dict[str, LaunchConfig]:
    return {name: _config(job, place, names.parse(name)) for name in process_names(job)}


def identities(job: DistTrainJob, uid: str) -> dict[str, Identity]:
    """Who gets credentials, by process; `replica` are the loops that the coordinator names."""
    found = {LAUNCHER: Identity(uid, LAUNCHER)}
    for name in process_names(job):
        process = names.parse(name)
        partition = process.partition or 0
        found[name] = Identity(uid, process.role.value, process.index, partition)
    loops = Identity(uid, Role.REPLICA.value, instance=identity.LOOPS)
    return found | {process_name(Role.REPLICA, None): loops}


def joining(job: DistTrainJob, place: Place) -> LaunchConfig:
    """What a training loop of the user's own is told, which the coordinator names."""
    return replace(_config(job, place, None), instance=identity.LOOPS)


def _config(job: DistTrainJob, place: Place, name: ProcessName | None) -> LaunchConfig:
    role, index = (Role.REPLICA, None) if name is None else (name.role, name.index)
    partition = 0 if name is None else name.partition or 0
    process = Role.REPLICA.value if name is None else str(name)
    threads = share_out(job.spec, place.cores)
    return LaunchConfig(
        job=job,
        job_uid=place.job_uid,
        role=role,
        index=index,
        partition=partition,
        run_folder=place.run_folder,
        task_folder=place.task_folder,
        coordinator_address=_coordinator_address(job, place),
        listen_address=_listen_address(job, place, role, index),
        transport=transport_kind(job),
        threads={Role.SHARD: threads.shard, Role.REPLICA: threads.replica}.get(role, 1),
        device=job.spec.replicas.device if role is Role.REPLICA else Device.CPU,
        resume_from=place.resume_from,
        credentials=place.credentials.get(process),
        tells_content=role is Role.REPLICA and index is not None and place.reach is not None,
    )


def require_joinable(job: DistTrainJob) -> None:
    """Raises NotJoinable for a job that only this machine's processes can work for."""
    if not needs_credentials(job):
        lack = "spec.transport must be tcp with encryption tls, so that strangers are kept out"
    elif job.spec.strategy.sandblaster is not None:
        lack = "spec.strategy.sandblaster counts on its own replicas; take downpour or localSteps"
    elif job.spec.replicas.processes > 1:
        lack = "a replica of several processes cannot join; set spec.replicas.ranks 1"
    else:
        return
    message = f"--joinable-at: {lack}"
    raise NotJoinable(message)


def warning_of_joiners(job: DistTrainJob) -> str | None:
    """What whoever lets others join should know of their pushes; None: they are bounded."""
    local_steps = job.spec.strategy.local_steps
    if local_steps is not None and local_steps.maximum_norm is not None:
        return None
    if local_steps is None:
        remedy = "to bound them, train by spec.strategy.localSteps with maximumNorm"
    elif local_steps.outer.rule.sends_parameters:
        remedy = "to bound them, take an outer rule of differences, and maximumNorm"
    else:
        remedy = "bound them by spec.strategy.localSteps.maximumNorm"
    return f"--joinable-at: what joiners push is believed, however large; {remedy}"


def _coordinator_address(job: DistTrainJob, place: Place) -> str:
    if place.reach is not None:
        return place.reach.coordinator
    if transport_kind(job) is TransportKind.TCP:
        return f"tcp://127.0.0.1:{place.coordinator_port}"
    return f"ipc://{place.sockets / names.COORDINATOR}"


def _listen_address(job: DistTrainJob, place: Place, role: Role, index: int | None) -> str | None:
    if role is Role.COORDINATOR:
        return _coordinator_address(job, place)
    if role is not Role.SHARD:
        return None
    if place.reach is not None:
        return place.reach.shard(index or 0)
    if transport_kind(job) is TransportKind.TCP:
        return ANY_PORT
    return f"ipc://{place.sockets / process_name(role, index)}"
