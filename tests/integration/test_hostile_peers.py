"""Strangers at the ports of a running job: nobody else notices, and no memory grows."""

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from safetensors.torch import load_file

from builders import issuing, raw_peers
from builders.runs import RunningJob
from builders.scraping import addresses, samples, scraped
from builders.transports import a_header
from disttrain.launch import config as launch_config
from disttrain.transport import framing
from disttrain.transport.errors import Refusal
from disttrain.transport.header import Role, Verb, job_digest

pytestmark = pytest.mark.landing

SAMPLES = 1024
EPOCHS = 2
ROLES = ("coordinator", "shard-0")
PATIENCE = 10.0
MOST_GROWTH = 32 << 20

GREETING = framing.greeting(0x1234)
"""Of a job that is none."""
HELLO = a_header(Verb.HELLO, role=Role.REPLICA)


def port_of(job: RunningJob, name: str) -> int:
    """Where a process of a job over TCP listens."""
    if name == "coordinator":
        return int(coordinator_address(job).rpartition(":")[2])
    members = job.status()["members"]
    address: str = next(each["address"] for each in members if each["name"] == name)
    return int(address.rpartition(":")[2])


def coordinator_address(job: RunningJob) -> str:
    config = job.launch_config("coordinator")
    address: str = config["listen_address"]
    return address


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE)


def random_bytes(port: int) -> None:
    for length in (1, 12, 64, 100_000):
        with connected(port) as connection:
            try:
                connection.sendall(os.urandom(length))
            except ConnectionError:
                continue


def other_greetings(port: int) -> None:
    for _ in range(20):
        with connected(port) as connection, suppress(ConnectionError):
            connection.sendall(GREETING)
            connection.sendall(b"x" * 100_000)


def half_open_connections(port: int) -> None:
    connections = [connected(port) for _ in range(100)]
    for number, connection in enumerate(connections):
        connection.sendall(GREETING[: number % len(GREETING)])
    time.sleep(1.0)  # They have to stay for a while; there is nothing to wait for.
    for connection in connections:
        connection.close()


def certificates_of_nobody(port: int) -> None:
    forged = issuing.by_role("a job", ["replica"])["replica"]
    for _ in range(20):
        connection = raw_peers.encrypted(f"tcp://127.0.0.1:{port}", forged)
        with connection, suppress(OSError):
            connection.do_handshake()


def messages_of_anything(port: int, job: RunningJob) -> None:
    """From one who has the credentials of a replica."""
    config = launch_config.read(job.output / "launch" / "replica-0.json")
    assert config.credentials is not None
    digest = job_digest(config.job_uid)
    for number in range(200):
        connection = raw_peers.encrypted(f"tcp://127.0.0.1:{port}", config.credentials)
        with connection:
            connection.do_handshake()
            connection.sendall(framing.greeting(digest))
            announced = (0, 0, 1 << 58)
            head = framing.encode(HELLO, job=digest, place=announced)
            connection.sendall(head if number % 2 else os.urandom(50 * (number % 40 + 4)))
            assert raw_peers.has_ended(connection)


ATTACKS: list[Callable[[int], None]] = [
    random_bytes,
    other_greetings,
    half_open_connections,
    certificates_of_nobody,
]


def resident_bytes(job: RunningJob) -> dict[str, int]:
    return {name: psutil.Process(job.pid(name)).memory_info().rss for name in ROLES}


def dropped(status: dict[str, Any], name: str) -> float:
    """How many messages a process has dropped of one who had credentials; of each kind half."""
    found = samples(scraped(addresses(status)[name]), "disttrain_messages_dropped_total")
    counts = {each.labels["reason"]: each.value for each in found}
    return 2 * min(counts.get(reason, 0.0) for reason in (Refusal.PAYLOAD, Refusal.MAGIC))


def well_begun(status: dict[str, Any]) -> bool:
    return bool(status.get("samples", 0) >= 64 and len(status["members"]) == 4)


def test_strangers_disturb_nobody_and_cost_no_memory(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    # It trains under attack for some seconds, and waits for the rest of it.
    task = f"spec.task.arguments={{step_seconds: 0.15, gate: {gate}}}"
    with RunningJob(tmp_path, ["spec.transport=tcp", task]) as job:
        job.wait_until(well_begun)
        before = resident_bytes(job)
        for name in ROLES:
            for attack in ATTACKS:
                attack(port_of(job, name))
            messages_of_anything(port_of(job, name), job)
        after = resident_bytes(job)
        job.wait_until(lambda status: all(dropped(status, name) >= 200 for name in ROLES))
        gate.touch()
        assert job.wait() == 0

        grown = {name: after[name] - before[name] for name in ROLES}
        assert max(grown.values()) < MOST_GROWTH, grown
        summary = job.summary()
        assert summary["restarts"] == {"coordinator": 0, "shard": 0, "replica": 0}
        assert summary["samplesRepeated"] == 0
        model = load_file(job.output / "model.safetensors")
        assert model["counts"].eq(EPOCHS).all()
        assert model["first_updates"].eq(EPOCHS * SAMPLES / 8).all()
        job.assert_promises_held()


def test_every_port_of_a_job_is_local(tmp_path: Path) -> None:
    over_tcp = ["spec.transport=tcp", "spec.task.arguments={step_seconds: 0.05}"]
    with RunningJob(tmp_path, over_tcp) as job:
        job.wait_until(well_begun)
        names = ["coordinator", "shard-0", "shard-1", "replica-0", "replica-1"]
        listening = {
            connection.laddr.ip
            for name in names
            for connection in psutil.Process(job.pid(name)).net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening == {"127.0.0.1"}
        job.interrupt()
        assert job.wait() == 130
        job.assert_promises_held()
