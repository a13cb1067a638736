"""Chunks on their way to one shard, which is silent until it has all of them."""

from collections import Counter
from collections.abc import Mapping

from disttrain.parameter_server.link import ShardLink
from disttrain.state.share import Part
from disttrain.state.vector import Vector
from disttrain.transport.header import Header
from disttrain.transport.interface import Buffer, Slice

_CHUNKS_AT_ONCE = 4
"""Sent before the answers of all shards are looked at again."""


class Sending:
    """What an upload and a staged gradient share: all over again after each welcome."""

    def __init__(self, link: ShardLink, header: Header, values: Mapping[Vector, Buffer]) -> None:
        self._link = link
        self._header = header
        self._values = values
        self._parts: list[Part] = []
        self._chunks: Counter[Vector] = Counter()
        self._sent = 0

    def begin(self) -> None:
        """Begin with the first chunk; nothing is sent before the shard's first welcome."""
        if self._link.share is not None:
            self._parts = self._link.share.all_chunks(self._values)
            self._chunks = Counter(part.vector for part in self._parts)
        self._sent = 0

    def send_more(self) -> bool:
        """A few chunks; the transport holds back what the shard does not take."""
        first = self._sent
        for part in self._parts[first : first + _CHUNKS_AT_ONCE]:
            payload = Slice(self._values[part.vector], part.offset, part.nbytes)
            if not self._link.send(self._header_of(part), payload):
                break
            self._sent += 1
            # A shard is silent until it has everything.
            self._link.expect_answer()
        return self._sent > first

    def _header_of(self, part: Part) -> Header:
        return self._header._replace(
            vector=self._link.placement.number(part.vector),
            element_type=part.vector.element_type,
            chunk=part.chunk,
            chunks=self._chunks[part.vector],
            first=part.first,
            count=part.count,
        )
