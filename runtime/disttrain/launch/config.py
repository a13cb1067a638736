"""What one process of a job is told at its start: a JSON file, written once, parsed strictly."""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from disttrain.job import location, names
from disttrain.job.credentials import Credentials, RenewedCredentials
from disttrain.job.location import Location
from disttrain.job.names import Role
from disttrain.job.roles import Device
from disttrain.job.spec import DistTrainJob
from disttrain.launch import atomic_file
from disttrain.launch.errors import InvalidLaunchConfig
from disttrain.transport.config import TransportConfig, TransportKind
from disttrain.transport.header import Role as TransportRole

ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes puts what belongs to a pod's service account."""

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterAccess:
    """Its address, and who the process is there. The files change while it runs."""

    server: str
    """https://HOST:PORT."""
    account_folder: Path = ACCOUNT_FOLDER

    @property
    def token(self) -> Path:
        return self.account_folder / "token"

    @property
    def authority(self) -> Path:
        return self.account_folder / "ca.crt"


class Supervisor(StrEnum):
    """Who starts a process again when it has ended."""

    LAUNCHER = "launcher"
    """`disttrain run`: sees every end, and tells the coordinator of it."""
    NODE = "node"
    """A kubelet, or whatever is like it: tells nobody, and ends processes by SIGTERM."""


_JOIN_SECONDS = {Supervisor.LAUNCHER: 600.0, Supervisor.NODE: 86_400.0}
"""A coordinator that crashed may be in its back-off; one on a cluster may wait for a node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """What the processes of a replica do in no job: they evaluate a model for a command."""

    model_file: Path
    """Its values; absolute."""
    sample: tuple[int, ...]
    """Shape of what the model is called with, but for the first dimension."""
    batch_size: int
    result: Path
    """Where the first process writes the sums, as JSON."""
    meeting: Path
    """A folder in which the processes find each other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchConfig:
    """The start of one process. What else it needs it learns from the coordinator when it joins."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, arbitrary_types_allowed=True
    )

    job: DistTrainJob
    job_uid: str
    """Random per run and kept by `resume`; the wire carries its 64-bit digest."""
    role: Role
    index: int | None
    """Of the group in its role, stable over restarts. None: a replica that the coordinator names.
    """
    partition: Annotated[int, Field(ge=0, exclude_if=lambda partition: partition == 0)] = 0
    """Which process of its group it is."""
    run_folder: Path
    """The output folder; absolute."""
    task_folder: Path
    """The manifest's folder, where the task's module lies; absolute."""
    coordinator_address: str
    """Where the coordinator listens: ipc://PATH or tcp://HOST:PORT."""
    listen_address: str | None = None
    """Where this process listens; port 0 takes any free one. None for replicas, which connect."""
    announce_address: str | None = None
    """What a shard tells replicas to connect to; None: where it listens."""
    transport: TransportKind
    threads: int
    """Threads for computing; at least 1."""
    group_address: Annotated[str, Field(exclude_if=lambda address: address == LOOPBACK)] = LOOPBACK
    """Of this machine: where the other processes of its group connect to."""
    device: Device = Device.CPU
    """Where a replica computes; the replica itself resolves `auto`."""
    resume_from: Path | None = None
    """Checkpoint folder to restore; None begins anew."""
    metrics_address: str = "127.0.0.1:0"
    """Where Prometheus metrics are served; port 0 takes any free one."""
    supervisor: Supervisor = Supervisor.LAUNCHER
    place: str = ""
    """Name of the only place where this process can be, its pod: who joins from the same place is
    the next incarnation of the same process. Empty: not known."""
    cluster: ClusterAccess | None = None
    """Where the coordinator writes the status of the job's object; None: nowhere."""
    credentials: Credentials | None = None
    """Of the process; None where nothing is encrypted, as in the files of other versions."""
    renewed: Annotated[RenewedCredentials | None, Field(exclude=True)] = None
    """Instead of those: credentials that are renewed while the process runs. In no file."""
    instance: str = ""
    """What the instances of this process begin with, as its certificate says; empty: anything."""
    tells_content: Annotated[bool, Field(exclude_if=lambda tells: not tells)] = False
    """Whether a replica tells examples of its data: strangers may join, or it is one."""
    evaluation: Annotated[Evaluation | None, Field(exclude_if=lambda told: told is None)] = None
    """None: this is a process of a job."""

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if self.index is None and self.role is not Role.REPLICA:
            message = f"a {self.role} must have an index"
            raise ValueError(message)
        if self.partition >= self.processes:
            message = f"process {self.partition}: its group has {self.processes} processes"
            raise ValueError(message)

    @property
    def processes(self) -> int:
        """Processes of its group. Whom the coordinator names is alone."""
        is_divided = self.role is Role.REPLICA and self.index is not None
        return self.job.spec.replicas.processes if is_divided else 1

    @property
    def process(self) -> str:
        return process_name(self.role, self.index, self.partition, self.processes)

    @property
    def shard_index(self) -> int:
        if self.index is None:
            message = "this process is named by the coordinator"
            raise AssertionError(message)
        return self.index

    @property
    def is_encrypted(self) -> bool:
        return self.job.spec.transport.is_encrypted and self.transport is TransportKind.TCP

    @property
    def transport_config(self) -> TransportConfig:
        """Raises InvalidLaunchConfig where credentials are missing."""
        if self.is_encrypted and (self.renewed or self.credentials) is None:
            message = (
                f"{self.process} was given no credentials, and its job's spec.transport.encryption "
                "is tls: start jobs with `disttrain run`"
            )
            raise InvalidLaunchConfig(message)
        return TransportConfig(
            kind=self.transport,
            job_uid=self.job_uid,
            role=TransportRole[self.role.name],
            encryption=self.job.spec.transport.encryption,
            credentials=self.renewed or self.credentials,
        )

    def new_instance(self) -> str:
        """How one incarnation of this process calls itself as it joins; each time another one."""
        chosen = uuid.uuid4().hex
        return f"{self.instance}.{chosen[:8]}" if self.instance else chosen

    @property
    def join_seconds(self) -> float:
        """How long this process waits for the coordinator, which may tell it to come later."""
        backoff = self.job.spec.failure_policy.restart_backoff
        return _JOIN_SECONDS[self.supervisor] + backoff.max_seconds

    @property
    def checkpoints(self) -> Location:
        return location.of(self.job, self.job_uid, self.run_folder, self.process)


def process_name(role: Role, index: int | None, partition: int = 0, processes: int = 1) -> str:
    """The name of a process: `coordinator`, `shard-0`, `replica-0`; `replica` before it has one.

    Of several processes of a replica: `replica-0-0`, `replica-0-1`.
    """
    if index is None:
        return role.value
    if role is Role.REPLICA:
        return names.member_name(index, partition, processes)
    return names.shard_name(index) if role is Role.SHARD else names.COORDINATOR


_CONFIG = TypeAdapter(LaunchConfig)


def to_json(config: LaunchConfig) -> bytes:
    """The file's content; `from_json` gives the same value back."""
    return _CONFIG.dump_json(config, by_alias=True, indent=1)


def from_json(content: bytes) -> LaunchConfig:
    """The config in a launch file. Raises InvalidLaunchConfig, which names every wrong field."""
    try:
        return _CONFIG.validate_json(_without_keys(content))
    except ValidationError as error:
        findings = "; ".join(_finding(dict(item)) for item in error.errors())
        message = f"the launch config is not valid: {findings}"
        raise InvalidLaunchConfig(message) from error


def _without_keys(content: bytes) -> bytes:
    """Files of versions that encrypted otherwise can be read, for `replay` and `resume`."""
    if b'"keys"' not in content:
        return content
    try:
        told = json.loads(content)
    except ValueError:
        return content
    if not isinstance(told, dict) or "keys" not in told:
        return content
    del told["keys"]
    return json.dumps(told).encode()


def write(path: Path, config: LaunchConfig) -> None:
    """Write the config into `path`, readable by this user only, if it is another one than before.

    A process is told the same at nearly each of its starts, which must not fail on a full disk.
    Raises OSError.
    """
    atomic_file.ensure(path, to_json(config))


def read(path: Path) -> LaunchConfig:
    """The config in the file `path`. Raises InvalidLaunchConfig."""
    try:
        return from_json(path.read_bytes())
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}; start jobs with `disttrain run`"
        raise InvalidLaunchConfig(message) from error


def _finding(item: Mapping[str, object]) -> str:
    place = item["loc"]
    path = ".".join(str(part) for part in place) if isinstance(place, tuple) else str(place)
    # The input of a field that is missing among the credentials holds their key.
    got = "" if path.startswith("credentials") else f", got {item['input']!r}"
    return f"{path}: {item['msg']}{got}"
