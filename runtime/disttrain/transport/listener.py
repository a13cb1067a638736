"""The server's side of many connections over sockets."""

import errno
import select
import socket
import time
from collections import Counter, deque
from itertools import count

from disttrain.transport import addresses, framing, tls
from disttrain.transport.config import TransportConfig
from disttrain.transport.errors import (
    ConnectionLost,
    MalformedMessage,
    Refusal,
    TransportClosed,
    UnreadableStream,
)
from disttrain.transport.framing import (
    MOST_REFUSED,
    Inbox,
    Outbox,
    Pages,
    Received,
    require_inline,
)
from disttrain.transport.header import Header, Reason, Role, Verb, job_digest
from disttrain.transport.interface import NO_BYTES, Payload, Request
from disttrain.transport.peer import Peer
from disttrain.transport.stream import Interest, SetUpErrors, Stream, deadline, remaining

_SWEEP_SECONDS = 0.25
"""Between two looks for connections that have had their time."""
_STEPS_PER_POLL = 16
"""Messages that are taken from busy connections before the others are looked at."""
_MOST_ACCEPTED = 16
"""At once."""
_GRACE_SECONDS = 0.5
"""What a stranger gets even when others wait."""


class SocketListener:
    """See `interface.Listener`. Sends and receives on the thread that asks for it."""

    def __init__(
        self, config: TransportConfig, address: str, largest_bytes: int, queue_length: int
    ) -> None:
        self.refused: Counter[str] = Counter()
        self._config = config
        self._job = job_digest(config.job_uid)
        self._largest_bytes = largest_bytes
        self._queue_length = queue_length
        self._place = addresses.parse(address)
        credentials = tls.credentials_at(self._place, config)
        self._tls = None
        if credentials is not None:
            self._tls = tls.Contexts(tls.server_context, credentials)
        self._socket = addresses.listen(self._place)
        self.address = addresses.bound(self._place, self._socket)
        self._events = select.epoll()
        self._events.register(self._socket, select.EPOLLIN)
        self._names = count(1)
        self._peers: dict[int, Peer] = {}
        """By descriptor."""
        self._by_name: dict[bytes, Peer] = {}
        self._unauthenticated: dict[int, Peer] = {}
        """Those that have not greeted, the oldest first."""
        self._queued: deque[Peer] = deque()
        self._steps = 0
        self._next_sweep = 0.0
        self._accepts = True
        self._set_up_errors = SetUpErrors(f"a connection to {self.address} was refused")
        self._pages = Pages()
        self._latest = NO_BYTES
        """The payload that was received last."""

    def receive(self, timeout: float) -> Request | None:
        """Malformed messages are counted, answered if they can be, and passed over."""
        self._require_open()
        end, refused_late = deadline(timeout), 0
        while refused_late < MOST_REFUSED:
            self._pages.take_back(self._latest)
            self._latest = NO_BYTES
            received = self._read()
            left = remaining(end)
            if received is not None:
                peer, (header, self._latest, refusal) = received
                request = self._request_or_refusal(peer, header, self._latest, refusal)
                if request is not None:
                    return request
            elif not self._queued and not self._poll(left) and left == 0.0:
                return None
            refused_late += left == 0.0
        return None

    def reply(self, to: Request | bytes, header: Header, payload: Payload = b"") -> bool:
        """What the socket does not take at once is copied."""
        parts = framing.message(header, payload, self._job, self._config.limits.payload_bytes)
        return self._send_to(to if isinstance(to, bytes) else to.peer, *parts)

    def forget(self, peer: bytes) -> None:
        """Nothing is held for a peer."""

    def close(self) -> None:
        if self._events.closed:
            return
        for peer in list(self._peers.values()):
            self._drop(peer)
        self._events.close()
        self._socket.close()
        addresses.leave(self._place)

    def is_ready(self) -> bool:
        """Whether a message has come, at least its header."""
        self._require_open()
        for _ in range(MOST_REFUSED):
            if not self._queued and not self._poll(0.0):
                return False
            while self._queued:
                peer = self._dequeue()
                if self._has_header(peer):
                    # Its turn is still to come.
                    peer.is_queued = True
                    self._queued.appendleft(peer)
                    return True
        return False

    def interests(self) -> list[Interest]:
        """What to wait for before `is_ready` or `receive` can find something new."""
        return [(self._events.fileno(), select.POLLIN)]

    def due_in(self) -> float:
        """Seconds until there is something to do, whatever comes."""
        return remaining(self._next_sweep)

    def _require_open(self) -> None:
        if self._events.closed:
            raise TransportClosed

    def _poll(self, timeout: float) -> bool:
        """Wait for news; whether there were any."""
        found = self._events.poll(min(timeout, _SWEEP_SECONDS if self._unauthenticated else 1.0))
        for descriptor, events in found:
            if descriptor == self._socket.fileno():
                self._accept()
            elif (peer := self._peers.get(descriptor)) is not None:
                self._handle(peer, events)
        self._sweep()
        return bool(found)

    def _handle(self, peer: Peer, events: int) -> None:
        if events & select.EPOLLOUT and not self._flush(peer):
            return
        if events & ~select.EPOLLOUT or not peer.has_shaken_hands:
            if peer.is_known:
                peer.since = time.monotonic()
            self._enqueue(peer)

    def _enqueue(self, peer: Peer) -> None:
        if not peer.is_queued:
            peer.is_queued = True
            self._queued.append(peer)

    def _dequeue(self) -> Peer:
        peer = self._queued.popleft()
        peer.is_queued = False
        return peer

    def _accept(self) -> None:
        for _ in range(_MOST_ACCEPTED):
            if not self._has_room():
                self._stop_accepting()
                return
            try:
                connected, _ = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._stop_accepting()
                    return
                # The client is gone already.
                continue
            self._admit(connected)

    def _admit(self, connected: socket.socket) -> None:
        try:
            addresses.prepare(connected)
            context = None if self._tls is None else self._tls.current
            stream = Stream(connected, context, is_server=True)
        except (OSError, ConnectionLost):
            connected.close()
            return
        inbox = Inbox(self._job, self._largest_bytes)
        name = next(self._names).to_bytes(8, "big")
        peer = Peer(name, stream, inbox, Outbox(self._queue_length), time.monotonic())
        self._peers[stream.fileno()] = self._unauthenticated[stream.fileno()] = peer
        self._events.register(stream.fileno(), peer.events)

    def _has_room(self) -> bool:
        """A stranger who has had some time and says nothing makes room; the others wait outside."""
        if len(self._unauthenticated) < self._config.limits.unauthenticated:
            return True
        oldest = next(iter(self._unauthenticated.values()))
        if oldest.is_queued or time.monotonic() - oldest.since < _GRACE_SECONDS:
            return False
        self._refuse_unauthenticated(oldest)
        return True

    def _stop_accepting(self) -> None:
        """Until the next sweep, or until a stranger is one no more."""
        if self._accepts:
            self._events.unregister(self._socket)
        self._accepts = False

    def _accept_again(self) -> None:
        if not self._accepts:
            self._events.register(self._socket, select.EPOLLIN)
        self._accepts = True

    def _sweep(self) -> None:
        now = time.monotonic()
        if now < self._next_sweep:
            return
        self._next_sweep = now + _SWEEP_SECONDS
        self._accept_again()
        limits = self._config.limits
        latest = now - limits.handshake.total_seconds()
        for peer in [peer for peer in self._unauthenticated.values() if peer.since < latest]:
            # What came while this thread was elsewhere counts.
            if not peer.is_queued:
                self._refuse_unauthenticated(peer)
        latest = now - limits.stall.total_seconds()
        for peer in [one for one in self._peers.values() if one.since < latest]:
            if peer.inbox.is_partial and not peer.is_queued:
                self._drop(peer)

    def _refuse_unauthenticated(self, peer: Peer) -> None:
        self.refused[Refusal.HANDSHAKE] += 1
        self._drop(peer)

    def _read(self) -> tuple[Peer, Received] | None:
        """The next message of those who have something to say, in turn."""
        if self._steps >= _STEPS_PER_POLL:
            self._steps = 0
            self._poll(0.0)
        while self._queued:
            self._steps += 1
            peer = self._dequeue()
            received = self._next(peer)
            if received is not None:
                self._enqueue(peer)
                return peer, received
        return None

    def _next(self, peer: Peer) -> Received | None:
        if not self._has_header(peer):
            return None
        try:
            return peer.inbox.next(peer.stream, self._pages.place)
        except ConnectionLost as error:
            self._lose(peer, error)
            return None

    def _has_header(self, peer: Peer) -> bool:
        try:
            return (peer.is_known or self._introduce(peer)) and peer.inbox.has_header(peer.stream)
        except ConnectionLost as error:
            self._lose(peer, error)
            return False

    def _introduce(self, peer: Peer) -> bool:
        """Whether it is known who the peer is. Raises ConnectionLost, UnreadableStream."""
        peer.is_known = peer.introduce(self._config)
        self._watch(peer)
        if peer.is_known:
            del self._unauthenticated[peer.stream.fileno()]
            self._by_name[peer.name] = peer
            self._accept_again()
        return peer.is_known

    def _lose(self, peer: Peer, error: ConnectionLost) -> None:
        is_of_certificate = self._set_up_errors.note(error)
        if isinstance(error, UnreadableStream):
            self.refused[error.refusal] += 1
            if error.refusal is Refusal.ENCRYPTION:
                peer.stream.tell_of_encryption()
        elif is_of_certificate:
            self.refused[Refusal.CERTIFICATE] += 1
        elif not peer.is_known:
            self.refused[Refusal.HANDSHAKE] += 1
        self._drop(peer)

    def _drop(self, peer: Peer) -> None:
        descriptor = peer.stream.fileno()
        if self._peers.get(descriptor) is not peer:
            return
        del self._peers[descriptor]
        self._unauthenticated.pop(descriptor, None)
        self._by_name.pop(peer.name, None)
        if peer.is_queued:
            self._queued.remove(peer)
        self._events.unregister(descriptor)
        peer.stream.close()
        self._pages.take_back(peer.inbox.take_place())
        self.forget(peer.name)

    def _request_or_refusal(
        self, peer: Peer, header: Header, payload: memoryview, refusal: Refusal | None
    ) -> Request | None:
        try:
            self._check(peer, header, refusal)
            request = self._request(peer.name, header, payload)
            return request and request._replace(identity=peer.identity)
        except MalformedMessage as error:
            self.refused[error.refusal] += 1
            self._refuse(peer, header, error)
            return None

    def _check(self, peer: Peer, header: Header, refusal: Refusal | None) -> None:
        if refusal is not None:
            raise MalformedMessage(refusal, "what came is not what can have been sent")
        if peer.role is not None and header.role != peer.role:
            said = Role(header.role).name
            detail = f"the certificate of {peer.role.name} speaks as {said}"
            raise MalformedMessage(Refusal.ROLE, detail)

    def _request(self, peer: bytes, header: Header, payload: memoryview) -> Request | None:
        if header.verb == Verb.ATTACH:
            raise MalformedMessage(Refusal.SEGMENT, "memory cannot be shared over TCP")
        require_inline(header)
        return Request(peer, header, payload)

    def _refuse(self, peer: Peer, header: Header, error: MalformedMessage) -> None:
        reason = _REASONS.get(error.refusal, Reason.MALFORMED)
        answer = header._replace(verb=Verb.REFUSED, role=self._config.role, sender=0, reason=reason)
        self.reply(peer.name, answer._replace(segment=0), str(error).encode())

    def _send_to(self, name: bytes, *parts: bytes | memoryview) -> bool:
        self._require_open()
        peer = self._by_name.get(name)
        if peer is None or peer.outbox.is_full:
            return False
        peer.outbox.add(*parts)
        if not self._flush(peer):
            return False
        peer.outbox.copy_last()
        return True

    def _flush(self, peer: Peer) -> bool:
        """Send what the peer takes now; whether it is still there."""
        try:
            if peer.is_known:
                peer.outbox.flush(peer.stream)
        except ConnectionLost as error:
            self._lose(peer, error)
            return False
        self._watch(peer)
        return True

    def _watch(self, peer: Peer) -> None:
        """Wait for room in the socket only while there is something to send."""
        writing = peer.outbox if peer.has_shaken_hands else peer.stream.wants_to_write
        events = select.EPOLLIN | (select.EPOLLOUT if writing else 0)
        if events != peer.events:
            self._events.modify(peer.stream.fileno(), events)
            peer.events = events


_REASONS = {
    Refusal.ROLE: Reason.NOT_ALLOWED,
    Refusal.SEGMENT: Reason.WRONG_RECEIVER,
}
