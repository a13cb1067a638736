"""A `disttrain run` with stand-ins for the roles, and what a test does to it and asks of it."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import psutil

from builders.jobs import SMALL

TESTS = Path(__file__).parents[1]
MARK = "DISTTRAIN_TEST_RUN"

STAND_INS = (
    "coordinator=builders.stand_in_coordinator,"
    "shard=builders.stand_in_member,replica=builders.stand_in_member"
)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Return when the condition holds; fail with the text after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in {seconds:.0f} s: {what}"
        time.sleep(0.02)


class LaunchedRun:
    """One command in a folder of its own; at the end of the block everything of it is killed."""

    def __init__(
        self, folder: Path, *arguments: str, module: str = "", printed: int = subprocess.PIPE
    ) -> None:
        self.output = folder / "out"
        self.mark = uuid.uuid4().hex
        (folder / "job.yaml").write_text(SMALL)
        (folder / "digits.py").write_text(module)
        self._folder = folder
        command = ("run", "job.yaml", "--output", "out", *arguments)
        self.command = self.start(*command, printed=printed)

    def start(self, *arguments: str, printed: int = subprocess.PIPE) -> "subprocess.Popen[str]":
        """Start another command of disttrain in the same folder."""
        paths = os.pathsep.join([str(TESTS), *sys.path])
        known = {"PYTHONPATH": paths, "DISTTRAIN_SERVERS": STAND_INS, MARK: self.mark}
        return subprocess.Popen(
            [sys.executable, "-m", "disttrain", *arguments],
            cwd=self._folder,
            env=os.environ | known,
            stdout=printed,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: object, trace: object) -> None:
        for process in self.processes():
            # The run may be ending by itself.
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.command.kill()
        output, _ = self.command.communicate()
        if error is not None:
            logs = sorted((self.output / "logs").glob("*.log"))
            texts = (f"--- {log.name}\n{log.read_text()}" for log in logs)
            sys.stderr.write("\n".join([output or "", *texts]))

    def processes(self) -> list[psutil.Process]:
        """Everything that the run started and that still lives, the command included.

        What a test asks of them is in `info`, as one may end between being found and being asked.
        """
        asked = ["environ", "name", "ppid", "cmdline"]
        return [each for each in psutil.process_iter(asked) if _has_mark(each, self.mark)]

    def pid(self, name: str) -> int:
        """Process id of the present incarnation of a process; 0 before the first."""
        file = self.output / "run.json"
        if not file.exists():
            return 0
        processes: dict[str, int] = json.loads(file.read_text())["processes"]
        return processes.get(name, 0)

    def wait_for(self, *names: str) -> None:
        """Wait until each of these processes has begun."""
        for name in names:
            wait_until(partial(self._has_begun, name), f"{name} begins")

    def _has_begun(self, name: str) -> bool:
        said = self.output / f"{name}.threads"
        return bool(self.pid(name)) and said.exists() and bool(said.read_text())

    def wait_for_new_incarnation(self, name: str, before: int) -> None:
        """Wait until a process has another id than before."""
        wait_until(lambda: self.pid(name) not in {0, before}, f"a new incarnation of {name}")

    def children_named(self, name: str) -> list[psutil.Process]:
        """The processes of the run that run this program."""
        return [process for process in self.processes() if process.info["name"] == name]

    def wait_for_output(self, text: str) -> None:
        """Read what the command prints until a line has this text."""
        assert self.command.stdout is not None
        while line := self.command.stdout.readline():
            if text in line:
                return
        message = f"the command ended without {text!r}"
        raise AssertionError(message)

    def kill(self, name: str) -> int:
        """kill -9 a process; returns the id that it had."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    def tell(self, name: str, word: str) -> None:
        """Have a stand-in member do something."""
        temporary = self.output / f".{name}.do"
        temporary.write_text(word)
        temporary.rename(self.output / f"{name}.do")

    def complete(self) -> None:
        """Have the stand-in coordinator end the job."""
        (self.output / "coordinator.exit").write_text("0")

    def requests(self, kind: str) -> list[dict[str, Any]]:
        """What the coordinator was told, of one kind."""
        file = self.output / "coordinator.requests"
        lines = file.read_text().splitlines() if file.exists() else []
        return [each for each in map(json.loads, lines) if each["kind"] == kind]

    def end(self, seconds: float = 60.0) -> tuple[int, str]:
        """Wait for the command's end; returns its exit code and its output."""
        output, _ = self.command.communicate(timeout=seconds)
        return self.command.returncode, output

    def wait_until_nothing_is_left(self, seconds: float = 30.0) -> None:
        """Fail unless every process of the run ends in time."""
        wait_until(lambda: not self.processes(), "no process is left", seconds)


def _has_mark(process: psutil.Process, mark: str) -> bool:
    environment: dict[str, str] | None = process.info["environ"]
    return environment is not None and environment.get(MARK) == mark
