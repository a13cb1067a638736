"""What a process says when it opens its transport."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from disttrain.job.credentials import Credentials, RenewedCredentials
from disttrain.job.transport import Encryption
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
    """Longest payload that is taken; a peer that announces more is disconnected at once. A shard
    over TCP takes only what a chunk needs. One message of each peer is in memory at a time."""
    send_queue: int = 16
    """Messages with a payload waiting for one peer: at most this many chunks of memory per peer."""
    header_queue: int = 64
    """The same for shared memory, where most messages are a few hundred bytes."""
    segments_per_peer: int = 64
    segment_bytes_per_peer: int = 256 << 30
    """Address space, not memory: the pages belong to the peer."""
    segments: int = 4096
    """Mapped segments of all peers together."""
    handshake: timedelta = timedelta(seconds=2)
    """A connection that has not said what it is by then is closed."""
    unauthenticated: int = 128
    """Connections that have not yet said what they are; further ones are not accepted yet. Each
    costs a descriptor and what TLS keeps for a handshake: at most 200 KiB."""
    stall: timedelta = timedelta(seconds=30)
    """A connection on which half a message has waited for its rest for so long is closed."""


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
    encryption: Encryption = Encryption.TLS
    """Of TCP; Unix sockets lie in a folder of this user alone and need none."""
    credentials: Credentials | RenewedCredentials | None = None
    """None: over TCP nothing can be opened that is encrypted."""
