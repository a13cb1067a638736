"""What joins shards and replicas in one process: memory, and threads that take turns."""

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

from disttrain.coordinator.protocol.messages import ShardAddress
from disttrain.job import names
from disttrain.parameter_server.client import ClientConfig, FetchClient, PushClient
from disttrain.parameter_server.conversation import Identity
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.connection import Sides
from disttrain.state.placement import Placement
from disttrain.transport.config import TransportConfig, TransportKind
from disttrain.transport.header import Role
from disttrain.transport.in_memory import InMemoryTransport, Network, Weather
from disttrain.transport.interface import Listener
from disttrain.transport.virtual_time import Bell, VirtualTime

T = TypeVar("T")

LOOK_AGAIN_SECONDS = 1.0
"""Of virtual time: nobody waits for so long while anything goes on."""
_ON_THE_WAY_SECONDS = 0.0001


class Wires:
    """The network of one replay. The thread that makes it is the first one of its virtual time."""

    def __init__(self, placement: Placement, chunk_bytes: int, incarnations: Sequence[int]) -> None:
        """`incarnations`: the incarnation of each shard."""
        self.time = VirtualTime()
        weather = Weather(shortest=_ON_THE_WAY_SECONDS, longest=_ON_THE_WAY_SECONDS)
        self._network = Network(self.time, weather=weather, chunk_bytes=chunk_bytes)
        config = TransportConfig(kind=TransportKind.TCP, job_uid="replay", role=Role.SHARD)
        self.transport = InMemoryTransport(self._network, config)
        self._placement = placement
        self._progressed_at = 0.0
        self._directory = [
            ShardAddress(index=index, incarnation=incarnation, address=names.shard_name(index))
            for index, incarnation in enumerate(incarnations)
        ]

    def listen(self, shard: int) -> Listener:
        return self.transport.listen(names.shard_name(shard))

    def sides(self, incarnation: SenderIncarnation) -> Sides:
        config = ClientConfig(
            transport=self.transport,
            identity=Identity(*incarnation),
            directory=lambda: self._directory,
            placement=self._placement,
        )
        return Sides(push=PushClient(config), fetch=FetchClient(config))

    def is_connected(self, peer: bytes) -> bool:
        """Whether the channel that a request came from is open."""
        return peer in self._network.channels

    def progressed(self) -> None:
        self._progressed_at = self.time.now

    @property
    def idle_seconds(self) -> float:
        """How long nothing was served."""
        return self.time.now - self._progressed_at


class VirtualTimeCancellation(Cancellation):
    """Its threads take turns by virtual time, and so do waits for its queues."""

    def __init__(self, time: VirtualTime) -> None:
        super().__init__()
        self._time = time
        self.clock = lambda: time.now

    def start(self, name: str, run: Callable[[], None]) -> threading.Thread:
        del name
        return self._time.start(run)

    def new_queue(self) -> "SimpleQueue[Any]":
        return _Queue(self._time)

    def new_event(self) -> threading.Event:
        return _Event(self._time)


def _wait_until(
    holds: Callable[[], bool], time: VirtualTime, bell: Bell, timeout: float | None
) -> None:
    """Until it holds, or for so long; it is asked again whenever the bell rings."""
    end = None if timeout is None else time.now + timeout
    while not holds() and (end is None or time.now < end):
        time.wait(LOOK_AGAIN_SECONDS if end is None else end - time.now, [bell])


class _Queue(SimpleQueue[T]):
    """Also raises queue.Empty by virtual time."""

    def __init__(self, time: VirtualTime) -> None:
        super().__init__()
        self._time = time
        self._bell = Bell(time)

    def put(self, item: T, block: bool = True, timeout: float | None = None) -> None:  # noqa: FBT001, FBT002
        super().put(item, block, timeout)
        self._bell.ring()

    def get(self, block: bool = True, timeout: float | None = None) -> T:  # noqa: FBT001, FBT002
        del block
        _wait_until(lambda: not self.empty(), self._time, self._bell, timeout)
        return self.get_nowait()


class _Event(threading.Event):
    """Is waited for by virtual time."""

    def __init__(self, time: VirtualTime) -> None:
        super().__init__()
        self._time = time
        self._bell = Bell(time)

    def set(self) -> None:
        super().set()
        self._bell.ring()

    def wait(self, timeout: float | None = None) -> bool:
        _wait_until(self.is_set, self._time, self._bell, timeout)
        return self.is_set()


def compute_with(threads: int) -> None:
    """Let this thread's operations use so many threads, whatever other threads use."""
    torch.set_num_threads(threads)
    # A thread's first large operation takes the number that was set last in any thread, unless the
    # thread has asked for the number before.
    torch.get_num_threads()
