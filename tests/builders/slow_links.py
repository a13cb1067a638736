"""Machines far from one another: network namespaces, and a router that slows what it carries.

Each machine has a cable to the router: a pair of veth. tbf limits the rate of each direction, and a
relay behind the router delays what goes from one cable to another. It takes root, ip and tc.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, Self

RELAY = Path(__file__).with_name("delaying_relay.py")
_DELAYED = "100"
"""The routing table of what comes from a cable."""
_BURST_BYTES = 32 * 1024
_CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")
_FLOW_PORT = 7075
_FLOW = """
import socket, sys, time
way, address, port, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
if way == "in":
    server = socket.create_server((address, port))
    print("ready", flush=True)
    peer, _ = server.accept()
    while data := peer.recv(1 << 20):
        peer.sendall(b".") if data == b"?" else None
else:
    peer, end = socket.create_connection((address, port)), time.monotonic() + seconds
    while seconds and time.monotonic() < end:
        peer.sendall(bytes(1 << 18))
    if not seconds:
        trips = []
        for _ in range(9):
            began = time.monotonic()
            peer.sendall(b"?")
            peer.recv(1)
            trips.append(time.monotonic() - began)
        print(min(trips))
"""


class Carried(NamedTuple):
    """Bytes at a machine's end of its cable, with all headers."""

    sent: int
    received: int


class SlowLinks(AbstractContextManager["SlowLinks"]):
    """`machines` namespaces, whose addresses are `address(index)`."""

    def __init__(
        self, machines: int, *, round_trip_seconds: float, congestion: str | None = None
    ) -> None:
        """Without a limit of the rate, until `limit`; `congestion`: of TCP, else the kernel's."""
        own = f"dt{os.getpid() % 100_000}"
        self.names = [f"{own}m{index}" for index in range(machines)]
        self._router = f"{own}r"
        self._delay = round_trip_seconds / 2
        self.congestion = congestion or _CONGESTION.read_text().strip()
        self._relay: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def address(self, machine: int) -> str:
        return f"10.77.{machine}.2"

    def on(self, machine: int) -> list[str]:
        """What a command is begun with to run on a machine."""
        return ["ip", "netns", "exec", self.names[machine]]

    def call(self, machine: int, *command: str) -> str:
        """What a command on a machine prints."""
        return _call(*self.on(machine), *command)

    def limit(self, megabits: float, queue_seconds: float = 0.05) -> None:
        """Of each cable, each way; what waits longer than `queue_seconds` for it is dropped."""
        shape = f"tbf rate {megabits:g}mbit burst {_BURST_BYTES} latency {queue_seconds * 1e3:g}ms"
        for index, name in enumerate(self.names):
            for where, device in ((name, "cable"), (self._router, f"to{index}")):
                _call("tc", "-n", where, "qdisc", "replace", "dev", device, "root", *shape.split())

    def flow(self, pairs: Sequence[tuple[int, int]], seconds: float) -> float:
        """Megabits a second of one connection for each pair of machines, all at once.

        As the receiving ends count them in the second half of the time.
        """
        with ExitStack() as held:
            for number, pair in enumerate(pairs):
                self._connect(held, number, pair, seconds)
            time.sleep(seconds / 2)
            before, began = self.carried(), time.monotonic()
            time.sleep(seconds / 2)
            after, ended = self.carried(), time.monotonic()
        received = sum(new.received - old.received for new, old in zip(after, before, strict=True))
        return received * 8e-6 / (ended - began)

    def round_trip(self, one: int, other: int) -> float:
        """The shortest of nine, in seconds."""
        with ExitStack() as held:
            client = self._connect(held, 0, (one, other), 0)
            return float(client.communicate()[0])

    def _connect(
        self, held: ExitStack, number: int, pair: tuple[int, int], seconds: float
    ) -> "subprocess.Popen[str]":
        to = [self.address(pair[1]), str(_FLOW_PORT + number), str(2 * seconds)]
        for machine, way in ((pair[1], "in"), (pair[0], "out")):
            process = subprocess.Popen(
                [*self.on(machine), sys.executable, "-c", _FLOW, way, *to],
                stdout=subprocess.PIPE,
                text=True,
            )
            held.enter_context(process)
            held.callback(process.kill)
            if way == "in":
                assert process.stdout is not None
                process.stdout.readline()
        return process

    def carried(self) -> list[Carried]:
        """What the kernel counts at each machine."""
        return [Carried(*self._counters(name)) for name in self.names]

    def relay_seconds(self) -> float:
        """Processor time of the relay."""
        assert self._relay is not None
        fields = Path(f"/proc/{self._relay.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill_all(self, machine: int) -> None:
        """SIGKILL to every process of a machine."""
        with suppress(subprocess.CalledProcessError):
            for pid in _call("ip", "netns", "pids", self.names[machine]).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)

    def _counters(self, name: str) -> tuple[int, int]:
        # /sys shows the devices of who mounted it, so this is read by a process of the namespace.
        files = [f"/sys/class/net/cable/statistics/{way}_bytes" for way in ("tx", "rx")]
        sent, received = _call("ip", "netns", "exec", name, "cat", *files).split()
        return int(sent), int(received)

    def _make(self) -> None:
        _call("ip", "netns", "add", self._router)
        _call("ip", "netns", "exec", self._router, "sysctl", "-w", "net.ipv4.ip_forward=1")
        self._begin_relay()
        for index, name in enumerate(self.names):
            _call("ip", "netns", "add", name)
            _call("ip", "-n", name, "link", "set", "lo", "up")
            link = ["ip", "link", "add", "cable", "netns", name, "type", "veth"]
            _call(*link, "peer", "name", f"to{index}", "netns", self._router)
            ends = ((name, "cable", 2), (self._router, f"to{index}", 1))
            for where, device, last in ends:
                _call("ip", "-n", where, "addr", "add", f"10.77.{index}.{last}/24", "dev", device)
                _call("ip", "-n", where, "link", "set", device, "up")
            _call("ip", "-n", name, "route", "add", "default", "via", f"10.77.{index}.1")
            rule = ["ip", "-n", self._router, "rule", "add", "iif", f"to{index}"]
            _call(*rule, "table", _DELAYED)
            setting = f"net.ipv4.tcp_congestion_control={self.congestion}"
            _call("ip", "netns", "exec", name, "sysctl", "-w", setting)

    def _begin_relay(self) -> None:
        command = ["ip", "netns", "exec", self._router, sys.executable, str(RELAY), "relay"]
        self._relay = subprocess.Popen(
            [*command, str(self._delay)], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._relay.stdout is not None
        assert self._relay.stdout.readline() == "ready\n", "the relay did not start"
        _call("ip", "-n", self._router, "link", "set", "relay", "txqueuelen", "10000", "up")
        route = ["ip", "-n", self._router, "route", "add", "default", "dev", "relay"]
        _call(*route, "table", _DELAYED)

    def _remove(self) -> None:
        for machine in range(len(self.names)):
            self.kill_all(machine)
        if self._relay is not None:
            self._relay.kill()
            self._relay.communicate()
        for name in (*self.names, self._router):
            with suppress(OSError, subprocess.CalledProcessError):
                _call("ip", "netns", "del", name)


def _call(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
