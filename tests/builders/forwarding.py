"""A pod's port on this machine, through the API server: pods have addresses in their cluster."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from builders import mortal
from cluster import Kubectl


@contextmanager
def forwarded(namespace: Kubectl, pod: str, port: int) -> Iterator[str]:
    """`127.0.0.1:PORT`, which is the pod's port as long as the context lasts."""
    line = namespace.command("port-forward", "--address=127.0.0.1", f"pod/{pod}", f":{port}")
    with subprocess.Popen(mortal.command(*line), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            told = re.match(r"Forwarding from (\S+)", process.stdout.readline())
            assert told is not None, f"no port of {pod} is forwarded"
            yield told[1]
        finally:
            process.kill()
