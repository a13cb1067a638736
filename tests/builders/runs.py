"""Jobs that run for real: `disttrain run` in a process of its own, to watch, kill and examine."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from builders.warm_processes import WarmCommand

TASKS = Path(__file__).parents[1] / "tasks"
TIMEOUT_SECONDS = 240.0

COUNTING = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: counting}
spec:
  task: {entrypoint: counting:Counting}
  strategy:
    downpour:
      localLearningRate: 0
      optimizer: {sgd: {learningRate: 1.0}}
  batchSize: 8
  stop: {epochs: 2}
  evaluation: null
  audit: full
  checkpoint: {everySeconds: 2}
  coordinator: {heartbeatSeconds: 0.2, leaseSeconds: 3, memberTimeoutSeconds: 20}
  parameterServer: {shards: 2}
  replicas: {count: 2, device: cpu}
  failurePolicy: {restartBackoff: {initialSeconds: 0.1, maxSeconds: 1}}
"""
BULKY = COUNTING.replace("counting:Counting", "bulky:Bulky").replace(
    "localLearningRate: 0\n      optimizer: {sgd: {learningRate: 1.0}}",
    "optimizer: {adagrad: {learningRate: 0.01}}",
)
"""A model that is one vector, as long as `spec.task.arguments.parameters` says."""


def has_restarted(role: str) -> Callable[[dict[str, Any]], bool]:
    """Whether one process of a role has started again, for `wait_until`."""
    return lambda status: bool(status["restarts"][role] == 1)


class Watched:
    """What a job leaves in its folder, while it runs and afterwards."""

    output: Path

    def status(self) -> dict[str, Any]:
        """What status.json says; empty before it is there."""
        return self._json("status.json")

    def summary(self) -> dict[str, Any]:
        return self._json("summary.json")

    def wait_until(
        self, holds: Callable[[dict[str, Any]], bool], timeout: float = TIMEOUT_SECONDS
    ) -> dict[str, Any]:
        """The first status for which `holds`; fails when the job ends before."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            status = self.status()
            if status and holds(status):
                return status
            self.assert_goes_on()
            time.sleep(0.02)
        message = f"not within {timeout} s: {self.status()}"
        raise AssertionError(message)

    def assert_goes_on(self) -> None:
        """Fail if nothing will change any more."""

    def assert_promises_held(self, *options: str) -> None:
        """`disttrain audit` finds nothing violated in the logs of this run."""
        found = self.output.parent / "audit"
        command = WarmCommand(["audit", str(self.output), *options], found)
        try:
            assert command.wait(TIMEOUT_SECONDS) == 0, found.read_text()
        finally:
            command.kill()

    def _json(self, name: str) -> dict[str, Any]:
        try:
            value: dict[str, Any] = json.loads((self.output / name).read_text())
        except (OSError, ValueError):
            return {}
        return value


class RunningJob(Watched):
    """One `disttrain run`; leaves no process behind."""

    _process: "WarmCommand | subprocess.Popen[bytes]"

    def __init__(
        self,
        folder: Path,
        assignments: Sequence[str] = (),
        manifest: str = COUNTING,
        options: Sequence[str] = (),
    ) -> None:
        self.output = folder / "output"
        for task in TASKS.glob("*.py"):
            shutil.copy(task, folder)
        job = folder / "job.yaml"
        job.write_text(manifest)
        command = ["run", str(job), "--output", str(self.output)]
        for assignment in assignments:
            command += ["--set", assignment]
        self._start([*command, *options])
        self._wait_started()

    @classmethod
    def resumed(cls, output: Path) -> Self:
        """Go on with the run in an output folder that another job has left."""
        job = cls.__new__(cls)
        job.output = output
        job.resume()
        return job

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: object, trace: object) -> None:
        self._process.kill()
        self._process.wait()
        if error is not None:
            sys.stderr.write(f"--- printed ---\n{self.printed()}\n")
            for log in sorted((self.output / "logs").glob("*.log")):
                sys.stderr.write(f"--- {log.name} ---\n{log.read_text()[-4000:]}\n")

    def resume(self) -> None:
        """Continue the run after its launcher has ended."""
        self._start(["resume", str(self.output)])
        self._wait_started()

    def wait(self, timeout: float = TIMEOUT_SECONDS) -> int:
        """The exit code of `disttrain run`; its output is in `printed`."""
        return self._process.wait(timeout)

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    @property
    def launcher(self) -> int:
        """The process id of `disttrain run`."""
        return self._process.pid

    def kill_launcher(self) -> None:
        """End `disttrain run` itself with SIGKILL."""
        self._process.kill()
        self._process.wait()

    def pid(self, name: str) -> int:
        """The process that has this name now, e.g. "replica-0"."""
        return int(self._json("run.json")["processes"][name])

    def pids(self) -> Sequence[int]:
        """Of the newest incarnation of each process of the run, ended or not."""
        processes: dict[str, int] = self._json("run.json")["processes"]
        return list(processes.values())

    def signal(self, name: str, number: int) -> int:
        """Send a signal to a process; its pid."""
        pid = self.pid(name)
        os.kill(pid, number)
        return pid

    def kill(self, name: str) -> int:
        """SIGKILL; the pid that was killed."""
        return self.signal(name, signal.SIGKILL)

    def launch_config(self, name: str) -> dict[str, Any]:
        """What a process was told at its start."""
        return self._json(f"launch/{name}.json")

    def printed(self) -> str:
        return self._printed.read_text()

    def log(self, name: str) -> str:
        path = self.output / "logs" / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def assert_goes_on(self) -> None:
        """Fail if the command has ended."""
        assert self._process.poll() is None, f"the job ended first:\n{self.printed()}"

    def _start(self, command: Sequence[str]) -> None:
        self._printed = self.output.parent / "printed"
        self._process = WarmCommand(command, self._printed)

    def _wait_started(self) -> None:
        end = time.monotonic() + TIMEOUT_SECONDS
        while not (self.output / "job.yaml").exists() and self._process.poll() is None:
            assert time.monotonic() < end, "disttrain run did not begin"
            time.sleep(0.01)


def set_shards(output: Path, shards: int) -> None:
    """Let a run that was stopped go on with another number of shards."""
    set_field(output, "parameterServer.shards", shards)


def set_field(output: Path, field: str, value: object) -> None:
    """Let a run that was stopped go on by another manifest: a field of its spec, with its path."""
    manifest = output / "job.yaml"
    job = yaml.safe_load(manifest.read_text())
    section, (*path, last) = job["spec"], field.split(".")
    for name in path:
        section = section[name]
    section[last] = value
    manifest.write_text(yaml.safe_dump(job))
