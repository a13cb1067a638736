"""The operator as a process of this machine, looking after one namespace."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from builders import free_port, mortal
from cluster import Kubectl, commands

_STOP_SECONDS = 15
_START_LIMIT = timedelta(minutes=4)
_FIRST_LOOK = b"jobs are there"


@dataclass(slots=True)
class OperatorProcess:
    """Started by `start`, and again after `kill`."""

    kubectl: Kubectl
    log: Path
    environment: Mapping[str, str]
    signing_port: int = field(default_factory=free_port.find)
    process: subprocess.Popen[bytes] | None = None
    bytes_before: int = 0
    """Of the log, when it was started."""

    def start(self) -> None:
        """Start it; it looks after the namespace of `kubectl`."""
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubectl.kubeconfig),
            "DISTTRAIN_NAMESPACES": self.kubectl.namespace,
            "DISTTRAIN_CHECKPOINT_SIZE": "1Mi",
            # As the chart has it: few clusters give volumes that nodes share.
            "DISTTRAIN_CHECKPOINT_ACCESS_MODES": "ReadWriteOnce",
            "DISTTRAIN_METRICS_PORT": "0",
            # The same over all of its starts: pods are told of it once.
            "DISTTRAIN_SIGNING_PORT": str(self.signing_port),
            **self.environment,
        }
        with self.log.open("ab") as log:
            self.bytes_before = log.tell()
            self.process = subprocess.Popen(
                mortal.command(sys.executable, "-m", "disttrain_operator"),
                env=environment,
                stdout=log,
                stderr=log,
            )

    def wait_for_its_first_look(self) -> None:
        """Return when it has seen what is there: a loaded machine takes a minute to start it."""
        commands.wait_until(
            lambda: _FIRST_LOOK in self.log.read_bytes()[self.bytes_before :],
            "the operator's first look",
            limit=_START_LIMIT,
        )

    def kill(self) -> None:
        """End it as no one expects."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as Kubernetes does."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(_STOP_SECONDS)
        self.process = None


@contextmanager
def running(kubectl: Kubectl, log: Path, **environment: str) -> Iterator[OperatorProcess]:
    """An operator for the namespace, as long as the context lasts."""
    process = OperatorProcess(kubectl, log, environment)
    process.start()
    try:
        process.wait_for_its_first_look()
        yield process
    finally:
        process.stop()
