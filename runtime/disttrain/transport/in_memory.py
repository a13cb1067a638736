"""Messages between parts of one process, by virtual time and through weather drawn from a seed.

For simulations and replays: what runs over sockets runs over it as it is. A push is read where its
sender has it, at the moment when it is received, as with shared memory; an answer is a copy, as
over TCP.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Generic, TypeVar, cast

from disttrain.transport.config import TransportConfig
from disttrain.transport.errors import (
    AddressRefused,
    Refusal,
    TransportClosed,
    TransportTimeout,
)
from disttrain.transport.header import Header, Role, job_digest
from disttrain.transport.interface import (
    Channel,
    Destination,
    Endpoint,
    Listener,
    Memory,
    Message,
    Payload,
    Request,
    Slice,
    as_bytes,
)
from disttrain.transport.memory import OrdinaryMemory
from disttrain.transport.virtual_time import Bell, VirtualTime

T = TypeVar("T")

_LOOK_AGAIN_SECONDS = 0.01
"""Whether a full queue has room."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Weather:
    """How bad the network is: probabilities for each message, and seconds on the way."""

    loss: float = 0.0
    duplication: float = 0.0
    overtaking: float = 0.0
    """That it may arrive before what was sent earlier in the same connection."""
    crash_loss: float = 0.0
    """That what an endpoint has sent does not arrive once it is closed; of each endpoint."""
    shortest: float = 0.0001
    longest: float = 0.0002


@dataclass(slots=True)
class Link:
    """What joins one process to the network; each direction carries one message after the other."""

    bytes_per_second: float
    sends_until: float = 0.0
    receives_until: float = 0.0


def carried(now: float, nbytes: int, sender: Link | None, receiver: Link | None) -> float:
    """When a message has left one link and filled the other; both are busy until then.

    None: a link that holds up nothing.
    """
    at = now
    if sender is not None:
        at = sender.sends_until = max(now, sender.sends_until) + nbytes / sender.bytes_per_second
    if receiver is not None:
        # What arrives is received while it is sent, unless something else is.
        busy_until = receiver.receives_until + nbytes / receiver.bytes_per_second
        alone = now + nbytes / receiver.bytes_per_second
        at = receiver.receives_until = max(at, busy_until, alone)
    return at


@dataclass(slots=True)
class Network:
    """What joins the transports of a simulation."""

    time: VirtualTime
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    weather: Weather = field(default_factory=Weather)
    route: Callable[["InMemoryTransport", str], str] = lambda _, address: address
    """The listener that a transport reaches under an address at this moment."""
    chunk_bytes: int = 2 << 20
    listeners: dict[str, "InMemoryListener"] = field(default_factory=dict)
    channels: dict[bytes, "InMemoryChannel"] = field(default_factory=dict)
    numbers: "count[int]" = field(default_factory=lambda: count(1))
    """Of channels, and of listeners that take any port."""

    def moments(self) -> list[float]:
        """How long each copy of a message is on its way; none if it is lost."""
        weather, chance = self.weather, self.chance
        copies = 1
        if weather.loss and chance.random() < weather.loss:
            copies = 0
        elif weather.duplication and chance.random() < weather.duplication:
            copies = 2
        return [chance.uniform(weather.shortest, weather.longest) for _ in range(copies)]

    def overtakes(self) -> bool:
        """Whether a message may be faster than those before it."""
        return bool(self.weather.overtaking) and self.chance.random() < self.weather.overtaking


class Way:
    """One direction of a connection. What is sent and not received is bounded."""

    def __init__(self, network: Network, limit: int) -> None:
        self.unreceived = 0
        self._network = network
        self._limit = limit
        self._latest = 0.0

    @property
    def is_full(self) -> bool:
        return self.unreceived >= self._limit

    def carry(
        self,
        arrive: Callable[[], None],
        nbytes: int,
        sender: Link | None,
        receiver: Link | None,
    ) -> None:
        time = self._network.time
        for seconds in self._network.moments():
            at = carried(time.now, nbytes, sender, receiver) + seconds
            if not self._network.overtakes():
                self._latest = at = max(at, self._latest)
            self.unreceived += 1
            time.after(at - time.now, arrive)


class _Inbox(Generic[T]):
    """What both kinds of endpoints do with what has arrived."""

    def __init__(self, network: Network) -> None:
        self.refused: Counter[str] = Counter()
        self.arrived: deque[T] = deque()
        self.bell = Bell(network.time)
        self.is_closed = False
        self._network = network
        self._drops = network.chance.random() < network.weather.crash_loss
        self._is_woken = False

    def wake(self) -> None:
        self._is_woken = True
        self.bell.ring()

    @property
    def is_cut(self) -> bool:
        """Whether what it has sent and is under way is lost."""
        return self.is_closed and self._drops

    def require_open(self) -> None:
        if self.is_closed:
            raise TransportClosed

    def _arrive(self, message: T) -> None:
        if not self.is_closed:
            self.arrived.append(message)
            self.bell.ring()

    def _next(self, end: float) -> T | None:
        """What comes first, until then or until somebody wakes this one."""
        time = self._network.time
        while True:
            self.require_open()
            if self.arrived:
                return self.arrived.popleft()
            if self._is_woken or time.now >= end:
                self._is_woken = False
                return None
            time.wait(end - time.now, [self.bell])


class InMemoryChannel(_Inbox[Message]):
    """See `interface.Channel`."""

    def __init__(self, transport: "InMemoryTransport", address: str, listener: Role) -> None:
        network = transport.network
        super().__init__(network)
        self.peer = b"c%d" % next(network.numbers)
        self.answers = Way(network, transport.queue)
        self.link = transport.link
        self._transport = transport
        self._address = address
        self.requests = Way(network, transport.queue)
        self._unsent: deque[Request] = deque()
        """Until there is a listener."""
        self._patience = 0.0
        if listener is not Role.COORDINATOR:
            self._patience = transport.config.send_timeout.total_seconds()
        network.channels[self.peer] = self

    def send(
        self, header: Header, payload: Payload = b"", *, reply_into: Slice | None = None
    ) -> None:
        """A place for answers is of no use here."""
        del reply_into
        self.require_open()
        view = as_bytes(payload, self._transport.config.limits.payload_bytes)
        header = header._replace(job=self._transport.job, payload_bytes=view.nbytes)
        self._wait_for_room()
        self._unsent.append(Request(self.peer, header, view.toreadonly()))
        self.send_waiting()

    def send_waiting(self) -> None:
        """Everything that waits, if there is a listener now."""
        network = self._network
        listener = network.listeners.get(network.route(self._transport, self._address))
        while listener is not None and self._unsent:
            request = self._unsent.popleft()
            self.requests.carry(
                partial(listener.take, self, request),
                request.payload.nbytes,
                self.link,
                listener.link,
            )

    def receive(self, timeout: float, destination: Destination | None = None) -> Message | None:
        """A payload of another length than its place is counted and passed over."""
        end = self._network.time.now + timeout
        while (message := self._next(end)) is not None:
            self.answers.unreceived -= 1
            place = destination(message.header) if destination and message.payload.nbytes else None
            if place is None:
                return message
            if place.nbytes == message.payload.nbytes:
                place[:] = message.payload
                return Message(message.header, place.toreadonly())
            self.refused[Refusal.PAYLOAD] += 1
        return None

    def take(self, sender: "InMemoryListener", message: Message) -> None:
        if sender.is_cut:
            self.answers.unreceived -= 1
        else:
            self._arrive(message)

    def close(self) -> None:
        self.is_closed = True
        self._network.channels.pop(self.peer, None)

    def _wait_for_room(self) -> None:
        time = self._network.time
        end, unsent = time.now + self._patience, self._transport.config.limits.send_queue
        while self.requests.is_full or len(self._unsent) >= unsent:
            if time.now >= end:
                message = "the peer's queue stays full; connect again or wait for its restart"
                raise TransportTimeout(message)
            time.wait(_LOOK_AGAIN_SECONDS)


class InMemoryListener(_Inbox[tuple[Way, Request]]):
    """See `interface.Listener`."""

    def __init__(self, transport: "InMemoryTransport", address: str) -> None:
        network = transport.network
        super().__init__(network)
        if address.endswith(":0"):
            address = f"{address[:-1]}{next(network.numbers)}"
        if address in network.listeners:
            message = f"cannot listen on {address!r}: somebody does; is the port free?"
            raise AddressRefused(message)
        self.address = address
        self.link = transport.link
        self._transport = transport
        network.listeners[address] = self
        for channel in list(network.channels.values()):
            channel.send_waiting()

    def receive(self, timeout: float) -> Request | None:
        """Messages of other jobs are counted and passed over."""
        end = self._network.time.now + timeout
        while (taken := self._next(end)) is not None:
            way, request = taken
            way.unreceived -= 1
            if request.header.job == self._transport.job:
                return request
            self.refused[Refusal.WRONG_JOB] += 1
        return None

    def reply(self, to: Request | bytes, header: Header, payload: Payload = b"") -> bool:
        self.require_open()
        view = as_bytes(payload, self._transport.config.limits.payload_bytes)
        channel = self._network.channels.get(to if isinstance(to, bytes) else to.peer)
        if channel is None or channel.answers.is_full:
            return False
        header = header._replace(job=self._transport.job, payload_bytes=view.nbytes)
        message = Message(header, memoryview(bytes(view)))
        channel.answers.carry(
            partial(channel.take, self, message), view.nbytes, self.link, channel.link
        )
        return True

    def take(self, sender: InMemoryChannel, request: Request) -> None:
        if self.is_closed or sender.is_cut:
            sender.requests.unreceived -= 1
        else:
            self._arrive((sender.requests, request))

    def forget(self, peer: bytes) -> None:
        """Nothing is held for a peer."""

    def close(self) -> None:
        """What has arrived is lost, and its senders have room again."""
        self.is_closed = True
        if self._network.listeners.get(self.address) is self:
            del self._network.listeners[self.address]
        for way, _ in self.arrived:
            way.unreceived -= 1
        self.arrived.clear()


class InMemoryTransport:
    """See `interface.Transport`. Everything of one process; `close` is also how it crashes."""

    def __init__(self, network: Network, config: TransportConfig, link: Link | None = None) -> None:
        self.network = network
        self.config = config
        self.link = link
        self.job = job_digest(config.job_uid)
        self.chunk_bytes = network.chunk_bytes
        self.queue = 2 * config.limits.send_queue
        """Messages under way in one direction of a connection."""
        self._endpoints: list[Endpoint] = []

    def now(self) -> float:
        return self.network.time.now

    def memory(self, owner: str) -> Memory:
        """Ordinary memory, whoever owns it."""
        del owner
        return OrdinaryMemory()

    def listen(self, address: str) -> Listener:
        listener = InMemoryListener(self, address)
        self._endpoints.append(listener)
        return listener

    def connect(
        self, address: str, listener: Role = Role.COORDINATOR, index: int | None = None
    ) -> Channel:
        del index
        channel = InMemoryChannel(self, address, listener)
        self._endpoints.append(channel)
        return channel

    def wait(self, endpoints: Sequence[Endpoint], timeout: float) -> list[Endpoint]:
        inboxes = [cast("InMemoryChannel | InMemoryListener", endpoint) for endpoint in endpoints]
        for inbox in inboxes:
            inbox.require_open()
        if timeout > 0 and not any(inbox.arrived for inbox in inboxes):
            self.network.time.wait(timeout, [inbox.bell for inbox in inboxes])
        return [inbox for inbox in inboxes if inbox.arrived]

    def close(self) -> None:
        for endpoint in self._endpoints:
            endpoint.close()
