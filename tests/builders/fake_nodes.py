"""The process of fake kubelets, and what it tells."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class FakeNodes:
    """Its numbers of pods as they change."""

    process: subprocess.Popen[str]
    log: Path
    told: dict[str, Any] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def complete_all(self) -> None:
        """End every coordinator, now and from now on."""
        assert self.process.stdin is not None
        self.process.stdin.write("complete\n")
        self.process.stdin.flush()

    def wait(self, reached: Callable[[dict[str, Any]], bool], limit: float) -> float:
        """Return when the numbers reached something: the time on the monotonic clock."""
        end = time.monotonic() + limit
        with self.changed:
            while not (self.told and reached(self.told)):
                left = end - time.monotonic()
                if left <= 0 or self.process.poll() is not None:
                    said = self.log.read_text()[-2000:]
                    message = f"not in {limit} s, the numbers are {self.told}; {said}"
                    raise TimeoutError(message)
                self.changed.wait(min(left, 1.0))
            return float(self.told["at"])

    def read(self) -> None:
        """Take in what the process tells, until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self.changed:
                self.told = json.loads(line)
                self.changed.notify_all()


@contextmanager
def running(kubeconfig: Path, number: int, log: Path) -> Iterator[FakeNodes]:
    """Nodes as long as the context lasts."""
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": paths}
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "builders.fake_kubelet", str(number)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    nodes = FakeNodes(process, log)
    reader = threading.Thread(target=nodes.read)
    reader.start()
    try:
        nodes.wait(bool, 120)
        yield nodes
    finally:
        process.kill()
        process.wait(15)
        reader.join(15)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
