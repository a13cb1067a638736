"""The operator as a process of this machine, looking after one namespace."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from builders import mortal
from cluster import Kubectl

_STOP_SECONDS = 15


@dataclass(slots=True)
class OperatorProcess:
    """Started by `start`, and again after `kill`."""

    kubectl: Kubectl
    log: Path
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it looks after the namespace of `kubectl`."""
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubectl.kubeconfig),
            "DISTTRAIN_NAMESPACES": self.kubectl.namespace,
            "DISTTRAIN_CHECKPOINT_SIZE": "1Mi",
            "DISTTRAIN_METRICS_PORT": "0",
            **self.environment,
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                mortal.command(sys.executable, "-m", "disttrain_operator"),
                env=environment,
                stdout=log,
                stderr=log,
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
        yield process
    finally:
        process.stop()
