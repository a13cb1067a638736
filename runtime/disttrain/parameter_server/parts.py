"""How a model's vectors are cut into the chunks of one shard, on the client's side. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from disttrain import layout
from disttrain.layout import ELEMENT_TYPES, Range
from disttrain.parameter_server.messages import Welcome
from disttrain.transport.header import ELEMENT_BYTES, Vector


class Part(NamedTuple):
    """One chunk: elements [first, first + elements) of a vector."""

    vector: Vector
    chunk: int
    """Number among the chunks of this vector at this shard."""
    first: int
    elements: int

    @property
    def offset(self) -> int:
        """Bytes from the start of the vector."""
        return self.first * ELEMENT_BYTES[ELEMENT_TYPES[self.vector]]

    @property
    def nbytes(self) -> int:
        """Length of the payload."""
        return self.elements * ELEMENT_BYTES[ELEMENT_TYPES[self.vector]]


def share(welcome: Welcome, vector: Vector) -> Range:
    """The shard's range of a vector."""
    elements = welcome.elements.get(layout.length_given_by(vector), 0)
    return layout.divide(elements, ELEMENT_TYPES[vector], welcome.shards)[welcome.shard]


def chunks(welcome: Welcome, vector: Vector) -> list[Part]:
    """The shard's chunks of a vector. An empty share of what is trained is one empty chunk."""
    whole = share(welcome, vector)
    chunk_elements = welcome.chunk_bytes // ELEMENT_BYTES[ELEMENT_TYPES[vector]]
    pieces = list(layout.chunks(whole, chunk_elements))
    if not pieces and layout.length_given_by(vector) in layout.TRIAL_OF:
        pieces = [whole]
    return [Part(vector, number, p.first, p.count) for number, p in enumerate(pieces)]


def all_chunks(welcome: Welcome, vectors: Iterable[Vector]) -> list[Part]:
    """The shard's chunks of several vectors, the parameters' first."""
    return [part for vector in sorted(vectors) for part in chunks(welcome, vector)]


def push_chunks(welcome: Welcome, runs: Mapping[Vector, Sequence[Range]]) -> list[Part]:
    """The chunks of a push: all parameters, then those parts of the buffers that are to be sent."""
    parts = chunks(welcome, layout.trainable(welcome.elements))
    for vector in sorted(runs):
        whole = share(welcome, vector)
        chunk_elements = welcome.chunk_bytes // ELEMENT_BYTES[ELEMENT_TYPES[vector]]
        for run in runs[vector]:
            mine = Range(first=max(run.first, whole.first), end=min(run.end, whole.end))
            if mine.count > 0:
                pieces = layout.chunks(mine, chunk_elements)
                parts.extend(Part(vector, 0, piece.first, piece.count) for piece in pieces)
    return parts
