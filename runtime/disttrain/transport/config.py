"""What a process says when it opens its transport."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from disttrain.transport.header import Role


class TransportKind(StrEnum):
    """How payloads travel."""

    TCP = "tcp"
    """Inside the messages."""
    SHARED_MEMORY = "sharedMemory"
    """As references to segments of the client; all processes on one machine, under one user."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds on what peers can make this process hold."""

    payload_bytes: int = 8 << 20
    """Largest frame that is taken; a peer that announces more is disconnected at once. A shard
    over TCP takes only what a chunk needs."""
    send_queue: int = 16
    """Messages with a payload waiting for one peer: at most this many chunks of memory per peer."""
    receive_queue: int = 16
    """Messages taken from one peer and not yet handled; then its connection is no longer read.

    With the largest frames that is 128 MiB for one peer of a coordinator, 32 MiB for one of a
    shard over TCP.
    """
    header_queue: int = 64
    """Both queues for shared memory, where most messages are a few hundred bytes."""
    segments_per_peer: int = 64
    segment_bytes_per_peer: int = 256 << 30
    """Address space, not memory: the pages belong to the peer."""
    segments: int = 4096
    """Mapped segments of all peers together."""
    handshake: timedelta = timedelta(seconds=2)
    """A connection that has not said what it is by then is closed: a half-open one costs one
    descriptor, and up to one frame of memory, for this long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CurveKeys:
    """Keys for encrypted connections, in the Z85 text form of ZeroMQ.

    Needed wherever strangers can connect. They do not bound what one who has a key sends: a peer
    can make one message of frames without end, and ZeroMQ keeps them all until the last one.
    """

    public: str
    secret: str = field(repr=False)
    listeners: dict[Role, str] = field(default_factory=dict)
    """Public keys that the listeners of these roles show; a client refuses all others."""
    allowed: dict[str, Role] = field(default_factory=dict)
    """Public keys that a listener accepts, each with the only role it may speak as."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TransportConfig:
    """Everything that decides how a process sends and receives."""

    kind: TransportKind
    job_uid: str
    role: Role
    """Role of this process; stands in the answers that the transport gives by itself."""
    limits: Limits = field(default_factory=Limits)
    send_timeout: timedelta = timedelta(seconds=2)
    """How long a full queue may block a sender before `TransportTimeout`. Queues are longer than
    what is sent unanswered, so that only a peer that is away fills one; whoever closes a client's
    thread waits for longer than this."""
    curve: CurveKeys | None = None
    """None: for Unix sockets in a folder of this user alone."""
