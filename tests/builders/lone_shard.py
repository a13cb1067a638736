"""A real shard process, with this process as its coordinator and its replicas."""

import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from builders import control_members, issuing, stand_in_coordinator
from builders.placements import a_placement
from builders.transports import a_config, an_address
from disttrain.coordinator.protocol import messages, payloads
from disttrain.coordinator.protocol.commands import Command, NumberedCommand, Result
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.messages import HeartbeatReply, Joined, ShardAddress
from disttrain.job.names import Role as JobRole
from disttrain.job.spec import DistTrainJob
from disttrain.job.transport import Encryption
from disttrain.launch.config import LaunchConfig
from disttrain.parameter_server.client import ClientConfig, Identity
from disttrain.state.vector import Vector
from disttrain.transport.config import TransportKind
from disttrain.transport.factory import open_transport
from disttrain.transport.header import Role
from disttrain.transport.interface import Transport
from disttrain.transport.malloc import MALLOC_ENVIRONMENT

JOB_UID = "lone-shard"
PLAIN = "spec.transport.encryption=none"
"""For what is to be measured of a shard alone: without it all is encrypted."""
START_SECONDS = 60.0
REPLICAS = 2


class LoneShard:
    """Started on entry, killed on exit. Commands may be given by any thread."""

    def __init__(
        self, job: DistTrainJob, folder: Path, kind: TransportKind, elements: Mapping[Vector, int]
    ) -> None:
        """`job`: what the shard is told."""
        self._job, self._folder, self._kind = job, folder, kind
        kept = job.spec.strategy.only_downpour.vectors
        self._placement = a_placement(elements, kept=kept)
        is_plain = job.spec.transport.encryption is Encryption.NONE
        self._issued = {} if is_plain else issuing.by_role(JOB_UID)
        self._transport = self._opened(Role.COORDINATOR)
        self._listener = self._transport.listen(an_address(kind, folder, "coordinator"))
        self._commands: dict[int, Command] = {}
        self._results: queue.Queue[Result] = queue.Queue()
        self._joined = threading.Event()
        self._ended = threading.Event()
        self._address = ""
        self._thread = threading.Thread(target=self._coordinate, daemon=True)

    def __enter__(self) -> Self:
        for name in ("logs", "ledger"):
            (self._folder / name).mkdir(exist_ok=True)
        self._process = control_members.started(self._config(), **MALLOC_ENVIRONMENT)
        self._thread.start()
        if not self._joined.wait(START_SECONDS):
            self._process.kill()
            message = f"the shard did not join within {START_SECONDS:.0f} s"
            raise TimeoutError(message)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._ended.set()
        self._thread.join()
        self._transport.close()

    def lose_coordinator(self) -> None:
        """Nobody answers the shard any more, nor takes what it says."""
        self._ended.set()
        self._thread.join()
        self._listener.close()

    def command(self, command: Command, timeout: float = 120.0) -> Result:
        """Give a command and wait for its result."""
        self._commands = {len(self._commands) + time.time_ns(): command}
        return self._results.get(timeout=timeout)

    def client_config(self, index: int) -> ClientConfig:
        """For clients of replica `index`, with a transport of their own."""
        return ClientConfig(
            transport=self._opened(Role.REPLICA),
            identity=Identity(index, 1),
            directory=lambda: [ShardAddress(index=0, incarnation=1, address=self._address)],
            placement=self._placement,
            patience_seconds=60.0,
        )

    def memory_bytes(self) -> int:
        """The most memory that the process has had so far."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024

    def _opened(self, role: Role) -> Transport:
        credentials = self._issued.get(str(JobRole[role.name]))
        return open_transport(
            a_config(self._kind, job_uid=JOB_UID, role=role, credentials=credentials)
        )

    def _config(self) -> LaunchConfig:
        return LaunchConfig(
            job=self._job,
            job_uid=JOB_UID,
            role=JobRole.SHARD,
            index=0,
            run_folder=self._folder,
            task_folder=self._folder,
            coordinator_address=self._listener.address,
            listen_address=an_address(self._kind, self._folder, "shard"),
            transport=self._kind,
            threads=1,
            credentials=self._issued.get(str(JobRole.SHARD)),
        )

    def _coordinate(self) -> None:
        while not self._ended.is_set():
            request = self._listener.receive(0.02)
            if request is not None:
                answer = self._answer(payloads.parse_request(request.payload))
                stand_in_coordinator.reply(self._listener, request, answer, self._transport.job)

    def _answer(self, request: messages.Request) -> messages.Reply:
        match request:
            case messages.AskPlacement():
                return messages.Placed()
            case messages.Join():
                self._address = request.data_address or ""
                self._joined.set()
                return self._welcome()
            case messages.Heartbeat():
                commands = [
                    NumberedCommand(id=i, order=command) for i, command in self._commands.items()
                ]
                return HeartbeatReply(orders=tuple(commands), live_replicas=REPLICAS)
            case messages.CommandDone():
                with suppress(KeyError):
                    self._commands.pop(request.order)
                    self._results.put(request.result)
        return messages.Acknowledged()

    def _welcome(self) -> Joined:
        return Joined(
            member=MemberId(role=Role.SHARD, index=0, incarnation=1),
            seed=0,
            replicas=dict.fromkeys(range(REPLICAS), 1),
            placement=self._placement,
            live_replicas=REPLICAS,
        )
