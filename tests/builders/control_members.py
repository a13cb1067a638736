"""Scripted members over a real transport, and a real coordinator process that can be killed."""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeAlias

from builders import placements
from builders.jobs import a_job
from builders.transports import a_config, opened
from disttrain.checkpoint import digest, names
from disttrain.coordinator.protocol import commands, fields, messages
from disttrain.coordinator.protocol.control import ControlConnection
from disttrain.coordinator.protocol.fields import (
    NO_PROGRESS,
    Lease,
    Position,
    Progress,
    SenderPosition,
)
from disttrain.coordinator.protocol.reports import ReplicaReport, ShardReport
from disttrain.job import defaults
from disttrain.job.names import Role as JobRole
from disttrain.launch import config as launch_config
from disttrain.launch.config import LaunchConfig
from disttrain.transport.config import TransportKind
from disttrain.transport.header import Role
from disttrain.transport.interface import Channel

_PATIENCE_SECONDS = 240.0
"""With a machine that has ten other things to do."""

LAYOUT = placements.of_lengths({placements.PARAMETERS: 64})


def a_join(
    role: Role, index: int | None, instance: str, *, samples: int | None = 32, **more: Any
) -> messages.Join:
    """What a shard or a replica says first."""
    own: dict[str, Any] = {"pid": len(instance), "data_address": "ipc:///x"}
    if role is Role.REPLICA:
        own |= {"data_address": None, "layout": LAYOUT, "train_samples": samples}
        own["test_samples"] = 10
    return messages.Join(role=role, index=index, instance=instance, **own | more)


def obeyed(command: commands.Command, progress: Progress = NO_PROGRESS) -> commands.Result:
    """The result of a command that was carried out, as far as it depends on no member."""
    if isinstance(command, commands.Fence):
        index, incarnation = command.index, command.incarnation
        sender = SenderPosition(index=index, incarnation=incarnation, position=Position())
        return commands.Fenced(sender=sender)
    if isinstance(command, commands.Drain):
        return commands.Drained(progress=progress)
    return commands.Done()


class FakeShard:
    """Joins, obeys, and remembers nothing between its incarnations."""

    def __init__(self, channel: Channel, index: int, restored: fields.Restored | None) -> None:
        self.control = ControlConnection(channel, Role.SHARD, 0.05)
        self.ended = False
        self.fenced: list[commands.Fence] = []
        more: dict[str, Any] = {"data_address": f"ipc:///nowhere-{index}", "restored": restored}
        join = a_join(Role.SHARD, index, uuid.uuid4().hex, pid=10_000 + index, **more)
        self.joined = self.control.join(join, timeout=_PATIENCE_SECONDS)

    def step(self) -> None:
        for command in self.control.poll(ShardReport).commands:
            self.control.answer([(command, self._result(command.order))], ShardReport)
            self.ended = self.ended or isinstance(command.order, commands.End)

    def _result(self, command: commands.Command) -> commands.Result:
        assert not isinstance(command, commands.Drain), "only replicas drain"
        if isinstance(command, commands.Fence):
            self.fenced.append(command)
        return self._write(command) if isinstance(command, commands.Checkpoint) else obeyed(command)

    def _write(self, command: commands.Checkpoint) -> commands.Result:
        name = names.part_file(self.control.member.index)
        content = b"not a model"
        try:
            (Path(command.folder) / name).write_bytes(content)
        except OSError as error:
            return commands.CommandFailed(message=str(error))
        return commands.ShardWritten(
            file=name, bytes=len(content), hash=digest.of(content), version=1
        )


class FakeReplica:
    """Processes its leases as fast as it is polled, a batch per step."""

    def __init__(self, channel: Channel, index: int, *, samples: int, batch: int) -> None:
        self.control = ControlConnection(channel, Role.REPLICA, 0.05)
        self.ended = False
        self.processed: list[tuple[Lease, int, int]] = []
        self.uploads = 0
        self.evaluated: list[str | None] = []
        self.report = ReplicaReport()
        self._batch = batch
        self._leases: list[Lease] = []
        self._offset = 0
        self._last_lease = 0
        self._asking = 0
        pid = 20_000 + index
        join = a_join(Role.REPLICA, index, uuid.uuid4().hex, samples=samples, pid=pid)
        self.joined = self.control.join(join, timeout=_PATIENCE_SECONDS)

    def step(self) -> None:
        received = self.control.poll(lambda: self.report)
        for number, reply in received.replies.items():
            if number == self._asking and isinstance(reply, messages.Work):
                self._asking = 0
                fresh = [lease for lease in reply.leases if lease.id > self._last_lease]
                self._leases += fresh
                self._last_lease = max([self._last_lease, *(lease.id for lease in fresh)])
        for command in received.commands:
            self.control.answer([(command, self._result(command.order))], lambda: self.report)
            self.ended = self.ended or isinstance(command.order, commands.End)
        self._compute()
        if not self._asking and len(self._leases) < 2 and not self.ended:
            request = messages.RequestWork(
                member=self.control.member,
                held=len(self._leases),
                last_lease=self._last_lease,
                progress=self.report.progress,
            )
            self._asking = self.control.request(request)

    def _compute(self) -> None:
        if not self._leases:
            return
        lease = self._leases[0]
        end = min(self._offset + self._batch, lease.samples)
        self.processed.append((lease, self._offset, end))
        samples = self.report.progress.samples + end - self._offset
        progress = Progress(position=Position(lease=lease.id, offset=end), samples=samples)
        self.report = replace(self.report, progress=progress, steps=self.report.steps + 1)
        self._offset = end
        if end == lease.samples:
            self._leases.pop(0)
            self._offset = 0

    def _result(self, command: commands.Command) -> commands.Result:
        assert not isinstance(command, commands.Fence), "only shards fence"
        if isinstance(command, commands.Upload):
            self.uploads += 1
        if isinstance(command, commands.Drain):
            self._leases, self._offset = [], 0
        if isinstance(command, commands.Evaluate):
            self.evaluated.append(command.model_file)
            return commands.Evaluated(sums={"correct": 8.0}, samples=10, loss=0.5)
        if isinstance(command, commands.Export):
            Path(command.out).write_bytes(b"exported")
        return obeyed(command, self.report.progress)


def started(config: LaunchConfig, **variables: str) -> "subprocess.Popen[bytes]":
    """A real process of a job, as a launcher starts one."""
    file = config.run_folder / f"{config.process}.json"
    file.write_bytes(launch_config.to_json(config))
    program = (sys.executable, "-m", "disttrain.launch.process")
    return subprocess.Popen([*program, str(file), str(os.getpid())], env=os.environ | variables)


class CoordinatorProcess:
    """A real coordinator with its job, and members that talk to it."""

    def __init__(self, folder: Path, *assignments: str) -> None:
        self.folder = folder
        self.launch = LaunchConfig(
            job=a_job("spec.transport.encryption=none", *assignments),
            job_uid=uuid.uuid4().hex,
            role=JobRole.COORDINATOR,
            index=0,
            run_folder=folder,
            task_folder=folder,
            coordinator_address=f"ipc://{folder}/c.sock",
            listen_address=f"ipc://{folder}/c.sock",
            transport=TransportKind.TCP,
            threads=1,
        )
        self._open = ExitStack()
        self._transports = {
            role: self._open.enter_context(
                opened(a_config(TransportKind.TCP, job_uid=self.launch.job_uid, role=role))
            )
            for role in (Role.SHARD, Role.REPLICA, Role.LAUNCHER)
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, resume_from: Path | None = None) -> None:
        self.process = started(replace(self.launch, resume_from=resume_from))

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)

    def channel(self, role: Role) -> Channel:
        channel = self._transports[role].connect(self.launch.coordinator_address)
        return self._open.enter_context(closing(channel))

    def shard(self, index: int, restored: fields.Restored | None = None) -> FakeShard:
        return FakeShard(self.channel(Role.SHARD), index, restored)

    def replica(self, index: int, samples: int = 640) -> FakeReplica:
        batch = defaults.samples_per_step(self.launch.job.spec)
        return FakeReplica(self.channel(Role.REPLICA), index, samples=samples, batch=batch)

    def launcher(self) -> ControlConnection:
        return ControlConnection(self.channel(Role.LAUNCHER), Role.LAUNCHER, 1.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._open.close()


Member: TypeAlias = FakeShard | FakeReplica


def play(members: Sequence[Member], until: Callable[[], bool]) -> None:
    """Poll the members until the condition holds; fail when it does not."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not until():
        assert time.monotonic() < deadline, f"not within {_PATIENCE_SECONDS:g} s"
        for member in members:
            if not member.ended:
                member.step()
        time.sleep(0.001)


def tell(control: ControlConnection, request: messages.Request) -> messages.Reply:
    """A request's reply, for somebody who is no member."""
    number = control.request(request)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        replies = control.poll(None, wait=0.05).replies
        if number in replies:
            return replies[number]
    message = f"no answer within {_PATIENCE_SECONDS:g} s"
    raise AssertionError(message)
