"""Runs that replicas of other machines may join, and such replicas, each in a folder of its own."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from builders.commands import disttrain
from builders.runs import TASKS, TIMEOUT_SECONDS, RunningJob
from builders.warm_processes import WarmCommand

PORTS = 4
"""Of a run with two shards: for joiners, the coordinator and the shards."""
JOINABLE = ("spec.transport=tcp", "spec.replicas.count=1", "spec.task.arguments.step_seconds=0.02")


def free_ports(host: str = "127.0.0.1") -> int:
    """The first of some ports in a row that nobody listens on at this moment."""
    while True:
        with ExitStack() as held, socket.create_server((host, 0)) as found:
            first = int(found.getsockname()[1])
            try:
                for port in range(first + 1, first + PORTS):
                    held.enter_context(socket.create_server((host, port)))
            except (OSError, OverflowError):
                continue
            return first


def a_joinable_run(
    folder: Path, address: str, assignments: Sequence[str] = (), **more: Any
) -> RunningJob:
    folder.mkdir()
    options = ("--joinable-at", address)
    return RunningJob(folder, [*JOINABLE, *assignments], options=options, **more)


class RunElsewhere(RunningJob):
    """A run whose launcher is begun by another command, such as `ip netns exec`."""

    def __init__(self, folder: Path, before: Sequence[str], address: str, steps: str) -> None:
        self._before = before
        folder.mkdir()
        super().__init__(folder, [*JOINABLE, steps], options=("--joinable-at", address))

    def _start(self, command_: Sequence[str]) -> None:
        self._printed = self.output.parent / "printed"
        with self._printed.open("wb") as printed:
            self._process = subprocess.Popen(
                [*self._before, *command(*command_)], stdout=printed, stderr=printed
            )


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "disttrain", *arguments]


class Invited(NamedTuple):
    """What whoever shall join is told."""

    address: str
    token: str


def invite(job: RunningJob, *more: str) -> Invited:
    told = disttrain("invite", job.output, *more)
    words = told.err.partition("#")[0].split()
    assert words[:2] == ["disttrain", "join"]
    return Invited(words[2], told.out.strip())


class Joiner:
    """One `disttrain join`; leaves no process behind. It reads the token from its input."""

    def __init__(
        self,
        folder: Path,
        invited: Invited,
        before: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`before`: what it is run by."""
        self.output = folder / "output"
        self.folder = folder
        if not folder.exists():
            shutil.copytree(TASKS, folder, ignore=shutil.ignore_patterns("__pycache__"))
        where = ("--task-folder", str(folder), "--output", str(self.output))
        self._printed = folder.with_suffix(".printed")
        token = f"{invited.token}\n".encode()
        joins = ("join", invited.address, *where)
        self._process: WarmCommand | subprocess.Popen[bytes]
        if not before:
            self._process = WarmCommand(joins, self._printed, reads=token, environment=environment)
            return
        with self._printed.open("wb") as printed:
            self._process = process = subprocess.Popen(
                [*before, *command(*joins)],
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=printed,
                env=os.environ | dict(environment or {}),
            )
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as told:
            told.write(token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: object, trace: object) -> None:
        self._process.kill()
        self._process.wait()
        if error is not None:
            sys.stderr.write(f"--- joiner printed ---\n{self.printed()}\n")
            for log in sorted((self.output / "logs").glob("*.log")):
                sys.stderr.write(f"--- {log.name} ---\n{log.read_text()[-4000:]}\n")

    def printed(self) -> str:
        return self._printed.read_text()

    def wait(self) -> int:
        return self._process.wait(TIMEOUT_SECONDS)

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def replica(self) -> int:
        """The process id of its replica; 0: none runs just now."""
        own = self._process.pid
        for child in Path(f"/proc/{own}/task/{own}/children").read_text().split():
            with suppress(FileNotFoundError):
                if Path(f"/proc/{child}/comm").read_text().startswith("dt:replica"):
                    return int(child)
        return 0

    def hand_over_ledgers(self, job: RunningJob) -> None:
        """Give the run what the joiner wrote down of its pushes, for the audit."""
        for ledger in (self.output / "ledger").iterdir():
            shutil.copy(ledger, job.output / "ledger")


def has_member(name: str, state: str = "live") -> Any:
    """Whether a status says so of a member."""
    return lambda status: any(
        one["name"] == name and one["state"] == state for one in status.get("members", ())
    )
