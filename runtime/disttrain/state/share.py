"""One holder's share of a placement, cut into the chunks in which it travels. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from disttrain.state.factors import Factors
from disttrain.state.fragments import WHOLE, Fragment
from disttrain.state.layout import trained
from disttrain.state.placement import Placement, Range, chunks
from disttrain.state.vector import BUFFERS, FROZEN, PARAMETERS, Vector


class Part(NamedTuple):
    """One chunk: elements [first, first + count) of a vector."""

    vector: Vector
    chunk: int
    """Number among the chunks of this vector at this holder."""
    first: int
    """Counted in the whole vector."""
    count: int  # type: ignore[assignment]  # Hides tuple.count, which no one asks of a part.

    @property
    def offset(self) -> int:
        return self.vector.place_of(self.first, self.count)[0]

    @property
    def nbytes(self) -> int:
        return self.vector.place_of(self.first, self.count)[1]


@dataclass(frozen=True)
class Share:
    """What both ends of a conversation with a holder go by."""

    placement: Placement
    holder: int
    chunk_bytes: int
    """Payload of every chunk but the last of each vector, as holders have it."""

    @cached_property
    def ranges(self) -> dict[Vector, Range]:
        return self.placement.ranges(self.holder)

    @cached_property
    def trained(self) -> Vector:
        return trained(self.ranges)

    @cached_property
    def factors(self) -> tuple[Factors, ...]:
        """Of what is trained here."""
        return self.placement.factors_in(self.trained.partition)

    def range_of(self, vector: Vector) -> Range:
        """The holder's part of a vector.

        One that no table knows, as a strategy makes it while it runs, lies as what it is beside.
        """
        known = self.ranges.get(vector.held)
        return self.ranges[vector.held.beside(PARAMETERS)] if known is None else known

    def chunk_elements(self, vector: Vector) -> int:
        """On the way in fewer bits a chunk has as many: it is shorter, and has the same number."""
        return self.chunk_bytes // vector.held.element_bytes

    def num_chunks(self, vector: Vector) -> int:
        """How many chunks a vector has here; at least 1 if it is trained, or as long as that."""
        count = -(-self.range_of(vector).count // self.chunk_elements(vector))
        return count if vector.is_of_a_model and not vector.is_trained else max(1, count)

    def chunk(self, vector: Vector, number: int) -> Part:
        """One of them; an empty one if there are not so many."""
        held, size = self.range_of(vector), self.chunk_elements(vector)
        first = min(held.first + number * size, held.end)
        return Part(vector, number, first, min(first + size, held.end) - first)

    def fragment_chunks(self, vector: Vector, fragment: Fragment) -> tuple[Part, ...]:
        """Those of a fragment of what is trained, or of what is as long; at least an empty one.

        All of any other vector.
        """
        if vector.name in {FROZEN, BUFFERS}:
            fragment = WHOLE
        known = self._fragment_chunks.get((vector, fragment))
        if known is None:
            known = self._fragment_chunks[vector, fragment] = self._cut(vector, fragment)
        return known

    @cached_property
    def _fragment_chunks(self) -> dict[tuple[Vector, Fragment], tuple[Part, ...]]:
        return {}

    def _cut(self, vector: Vector, fragment: Fragment) -> tuple[Part, ...]:
        if fragment.fragments == 1:
            count = self.num_chunks(vector)
            return tuple(self.chunk(vector, number) for number in range(count))
        runs = fragment.runs(self.placement.elements(self.trained))
        nothing = Part(vector, 0, self.range_of(vector).first, 0)
        found = [piece for piece in self.pieces(vector, runs) if piece.count] or [nothing]
        return tuple(piece._replace(chunk=chunk) for chunk, piece in enumerate(found))

    def all_chunks(self, vectors: Iterable[Vector], fragment: Fragment = WHOLE) -> list[Part]:
        """Those of several vectors, in the table's order; of what is trained, a fragment alone.

        What is trained comes first, or what is as long: its first chunk says which version a fetch
        is of.
        """
        number, others = self.placement.number, {FROZEN, BUFFERS}
        return [
            part
            for vector in sorted(vectors, key=lambda each: (each.name in others, number(each)))
            for part in self.fragment_chunks(vector, fragment)
        ]

    def pieces(self, vector: Vector, runs: Iterable[Range]) -> list[Part]:
        """What lies here of some runs of a vector's elements, none longer than a chunk."""
        held, size = self.range_of(vector), self.chunk_elements(vector)
        mine = (Range(max(run.first, held.first), min(run.end, held.end)) for run in runs)
        return [
            Part(vector, 0, piece.first, piece.count)
            for part in mine
            for piece in chunks(part, size)
        ]
