"""A process that was started with the usual limits has as many connections as a large job needs."""

import subprocess
import sys
from pathlib import Path

CONNECTIONS = 1100
_MAKE = f"""
import resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
from disttrain.transport.config import TransportConfig, TransportKind
from disttrain.transport.factory import open_transport
from disttrain.transport.header import Role
transport = open_transport(
    TransportConfig(kind=TransportKind.TCP, job_uid="many", role=Role.REPLICA)
)
channels = [transport.connect("ipc://{{}}/nobody") for _ in range({CONNECTIONS})]
print(len(channels))
for channel in channels:
    channel.close()
transport.close()
"""


def test_a_soft_limit_of_1024_files_does_not_bound_the_connections(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-c", _MAKE.replace("{}", str(tmp_path))],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert made.stdout.strip() == str(CONNECTIONS), made.stderr
