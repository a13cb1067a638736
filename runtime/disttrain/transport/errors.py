"""What can go wrong in the transport.

TransportError
|-- MalformedMessage    bytes from outside that are no message of this job (final: dropped, counted)
|-- SegmentRefused      a peer's shared memory that does not pass the checks (final: answered)
|-- TransportTimeout    a peer takes nothing off our queue (worth trying again)
|-- ConnectionLost      a connection ended (worth trying again: a channel does so by itself)
|   `-- UnreadableStream  what a peer sends is no message, or too long (final: it is disconnected)
|-- TransportClosed     used after it was closed (final: a mistake of the caller, or the end)
|-- AddressRefused      an address that cannot be used (final)
|-- InvalidCredentials  keys or certificates that cannot be used (final)
`-- MessageTooLarge     a payload of our own above the limit (final: a mistake of the caller)
"""

from enum import StrEnum


class Refusal(StrEnum):
    """Why a received message was dropped; the keys of `Listener.refused`."""

    HANDSHAKE = "no greeting in time"
    CERTIFICATE = "no certificate of this job"
    ENCRYPTION = "TLS on one side alone"
    MAGIC = "no magic or another protocol version"
    WRONG_JOB = "message of another job"
    FIELDS = "field out of range"
    PAYLOAD = "payload of another length than the header says"
    SEGMENT = "shared memory that was refused or is not known"
    ROLE = "role of another certificate"
    IMPOSTOR = "certificate of another process"


class TransportError(Exception):
    """Every error of this package."""


class MalformedMessage(TransportError):
    """Received bytes that are not a message of this job."""

    def __init__(self, refusal: Refusal, detail: str) -> None:
        super().__init__(f"{refusal}: {detail}")
        self.refusal = refusal


class SegmentRefused(TransportError):
    """A segment of a peer that does not pass the checks, or that was never attached."""


class TransportTimeout(TransportError):
    """The peer took nothing off the queue for the whole send timeout."""


class ConnectionLost(TransportError):
    """The peer or the network ended a connection."""


class UnreadableStream(ConnectionLost):
    """A peer sent what is no greeting or header, or announced too long a payload."""

    def __init__(self, refusal: Refusal, detail: str) -> None:
        super().__init__(f"{refusal}: {detail}")
        self.refusal = refusal


class TransportClosed(TransportError):
    """A closed channel, listener or transport was used."""

    def __init__(self) -> None:
        super().__init__("used after it was closed")


class AddressRefused(TransportError):
    """An address that cannot be bound or connected to."""


class InvalidCredentials(TransportError):
    """A certificate, a key or an authority that cannot be used."""


class MessageTooLarge(TransportError):
    """A payload above the limit of the transport."""
