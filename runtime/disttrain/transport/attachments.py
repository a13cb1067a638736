"""The segments of its peers that a listener has mapped, until the peer is forgotten or dies."""

import os
import select
import time
from dataclasses import dataclass, field

from disttrain.transport import segments
from disttrain.transport.config import Limits
from disttrain.transport.errors import SegmentRefused
from disttrain.transport.segments import Access, Description

_SWEEP_SECONDS = 0.5
"""How long the memory of a dead process may stay mapped."""


@dataclass(slots=True)
class _Peer:
    """What one peer has attached."""

    mapped: dict[tuple[int, Access], tuple[str, memoryview]] = field(default_factory=dict)
    processes: dict[int, int] = field(default_factory=dict)
    """Process number -> descriptor that becomes readable when it has ended."""

    @property
    def nbytes(self) -> int:
        return sum(view.nbytes for _, view in self.mapped.values())


class Attachments:
    """Belongs to the listener's thread."""

    def __init__(self, job: int, limits: Limits) -> None:
        self._job = job
        self._limits = limits
        self._peers: dict[bytes, _Peer] = {}
        self._ended = select.poll()
        self._peer_of: dict[int, bytes] = {}
        self._next_sweep = 0.0

    def attach(self, name: bytes, description: Description) -> None:
        """Maps a segment; the same one again changes nothing. Raises SegmentRefused."""
        peer = self._peers.get(name, _Peer())
        key = (description.segment, description.access)
        if key in peer.mapped and peer.mapped[key][0] == description.name:
            return
        self._check_limits(peer, description)
        view = segments.open_segment(description, self._job)
        self._watch(name, peer, description.process)
        peer.mapped[key] = (description.name, view)
        self._peers[name] = peer

    def part(self, name: bytes, key: tuple[int, Access], offset: int, nbytes: int) -> memoryview:
        """Bytes of a mapped segment. Raises SegmentRefused if it is not mapped, or shorter."""
        peer = self._peers.get(name)
        if peer is None or key not in peer.mapped:
            message = f"segment {key[0]} is not attached for {key[1]}: say HELLO and send again"
            raise SegmentRefused(message)
        view = peer.mapped[key][1]
        if offset + nbytes > view.nbytes:
            message = (
                f"bytes {offset} to {offset + nbytes} of segment {key[0]}, which has {view.nbytes}"
            )
            raise SegmentRefused(message)
        return view[offset : offset + nbytes]

    def forget(self, name: bytes) -> None:
        """Drops the mappings of a peer; pages go when the last view of them does."""
        peer = self._peers.pop(name, None)
        if peer is None:
            return
        for descriptor in peer.processes.values():
            self._ended.unregister(descriptor)
            del self._peer_of[descriptor]
            os.close(descriptor)

    def forget_dead(self) -> None:
        """Drops the mappings of peers whose process has ended; looks at most twice a second."""
        now = time.monotonic()
        if now < self._next_sweep:
            return
        self._next_sweep = now + _SWEEP_SECONDS
        for descriptor, _ in self._ended.poll(0):
            if descriptor in self._peer_of:
                self.forget(self._peer_of[descriptor])

    def close(self) -> None:
        """Drops everything."""
        for name in list(self._peers):
            self.forget(name)

    def _check_limits(self, peer: _Peer, description: Description) -> None:
        limits = self._limits
        checks = (
            ("segments of this peer", len(peer.mapped) + 1, limits.segments_per_peer),
            ("bytes of this peer", peer.nbytes + description.nbytes, limits.segment_bytes_per_peer),
            ("segments of all peers", self._segments() + 1, limits.segments),
        )
        for what, wanted, allowed in checks:
            if wanted > allowed:
                message = f"{wanted} {what}; at most {allowed}"
                raise SegmentRefused(message)

    def _segments(self) -> int:
        return sum(len(peer.mapped) for peer in self._peers.values())

    def _watch(self, name: bytes, peer: _Peer, process: int) -> None:
        if process in peer.processes:
            return
        try:
            descriptor = os.pidfd_open(process)
        except OSError as error:
            message = f"process {process} is gone: {error}"
            raise SegmentRefused(message) from error
        peer.processes[process] = descriptor
        self._peer_of[descriptor] = name
        self._ended.register(descriptor, select.POLLIN)
