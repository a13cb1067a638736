"""Strangers at the ports of a running job: nobody else notices, and no memory grows."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq
from safetensors.torch import load_file

from builders.runs import RunningJob
from builders.scraping import addresses, scraped, total
from disttrain.transport.header import Role

pytestmark = pytest.mark.landing

SAMPLES = 1024
EPOCHS = 2
ROLES = {"coordinator": Role.COORDINATOR, "shard-0": Role.SHARD}
PATIENCE = 10.0
MOST_GROWTH = 32 << 20

GREETING = b"\xff\0\0\0\0\0\0\0\1\x7f\3\1NULL".ljust(10 + 2 + 20 + 1 + 31, b"\0")
"""How a peer of ZeroMQ begins (ZMTP 3.1)."""
READY = b"\x04\x29\x05READY\x0bSocket-Type\0\0\0\6DEALER\x08Identity\0\0\0\0"
HUGE_FRAME = b"\x02" + (1 << 62).to_bytes(8, "big")
"""The head of a frame that promises 4 exabytes."""
MORE_OF_A_MESSAGE = b"\x03" + (1 << 20).to_bytes(8, "big") + bytes(1 << 20)
"""One frame of several; the last one never comes."""


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


def oversize_lengths(port: int) -> None:
    for _ in range(20):
        with connected(port) as connection:
            connection.sendall(GREETING + READY + HUGE_FRAME)
            try:
                connection.sendall(b"x" * 100_000)
            except ConnectionError:
                continue


def half_open_connections(port: int) -> None:
    connections = [connected(port) for _ in range(100)]
    for number, connection in enumerate(connections):
        connection.sendall(GREETING[: number % len(GREETING)])
    time.sleep(1.0)  # They have to stay for a while; there is nothing to wait for.
    for connection in connections:
        connection.close()


def a_message_without_end(port: int) -> None:
    for _ in range(20):
        with connected(port) as connection:
            try:
                connection.sendall(GREETING + READY)
                for _ in range(40):
                    connection.sendall(MORE_OF_A_MESSAGE)
            except ConnectionError:
                continue


def frames_of_anything(port: int, keys: dict[str, Any], listener: Role) -> None:
    """From one who has the keys of a replica."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.curve_publickey = keys["public"].encode()
        stranger.curve_secretkey = keys["secret"].encode()
        stranger.curve_serverkey = keys["listeners"][str(int(listener))].encode()
        # What is not sent yet when the socket closes would be thrown away, and never counted.
        stranger.linger = int(PATIENCE * 1000)
        stranger.sndtimeo = int(PATIENCE * 1000)
        stranger.connect(f"tcp://127.0.0.1:{port}")
        for number in range(200):
            frames = [os.urandom(50 * (number % 40)) for _ in range(1 + number % 4)]
            stranger.send_multipart([b"DTRN" + frames[0], *frames[1:]])


ATTACKS: list[Callable[[int], None]] = [
    random_bytes,
    oversize_lengths,
    half_open_connections,
    a_message_without_end,
]


def resident_bytes(job: RunningJob) -> dict[str, int]:
    return {name: psutil.Process(job.pid(name)).memory_info().rss for name in ROLES}


def dropped(status: dict[str, Any], name: str) -> float:
    """How many messages of strangers a process has counted."""
    return total(scraped(addresses(status)[name]), "disttrain_messages_dropped_total")


def well_begun(status: dict[str, Any]) -> bool:
    return bool(status.get("samples", 0) >= 64 and len(status["members"]) == 4)


def test_strangers_disturb_nobody_and_cost_no_memory(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    # It trains under attack for some seconds, and waits for the rest of it.
    task = f"spec.task.arguments={{step_seconds: 0.15, gate: {gate}}}"
    with RunningJob(tmp_path, ["spec.transport=tcp", task]) as job:
        job.wait_until(well_begun)
        before = resident_bytes(job)
        for name, role in ROLES.items():
            for attack in ATTACKS:
                attack(port_of(job, name))
            keys = job.launch_config("replica-0")["keys"]
            frames_of_anything(port_of(job, name), keys, role)
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
