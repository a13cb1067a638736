"""What a shard holds of the attempts at groups until one of each is committed. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from disttrain.sandblaster.batch.pairwise import pairwise
from disttrain.sandblaster.errors import NotStaged, StagingFull, WrongEvaluation
from disttrain.sandblaster.kernels import Array


@dataclass(slots=True)
class Piece:
    """One attempt's sum of gradients, as far as it has arrived."""

    values: Array
    missing: set[int]
    """Chunks that have not arrived."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """A part of a piece, as a message carries it."""

    evaluation: int
    attempt: int
    number: int
    chunks: int
    """Of the whole piece."""
    first: int
    """Place of its first element in the piece."""


@dataclass(kw_only=True, slots=True)
class Staging:
    """What has arrived of the evaluation that is under way. Belongs to one thread."""

    elements: int
    most_bytes: int
    """Memory for pieces. A batch needs its groups and their copies times the shard's range."""
    evaluation: int = 0
    """0: none is under way."""
    _pieces: dict[int, Piece] = field(default_factory=dict)

    def begin(self, evaluation: int) -> None:
        """Forget everything of other evaluations. Said again, it changes nothing."""
        if evaluation != self.evaluation:
            self.evaluation = evaluation
            self._pieces.clear()

    def stage(self, chunk: Chunk, values: Array) -> bool:
        """Keep a chunk; whether the whole piece is here now. One that came before is left alone.

        Raises WrongEvaluation or StagingFull.
        """
        if chunk.evaluation != self.evaluation:
            message = f"evaluation {self.evaluation} is under way, got a part of {chunk.evaluation}"
            raise WrongEvaluation(message)
        piece = self._pieces.get(chunk.attempt) or self._new_piece(chunk, values)
        if chunk.number in piece.missing:
            piece.values[chunk.first : chunk.first + len(values)] = values
            piece.missing.discard(chunk.number)
        return not piece.missing

    def total(self, attempts: Sequence[int]) -> Array:
        """The sum of one attempt for each group, by the groups' places.

        Raises NotStaged if one of them is not here as a whole.
        """
        pieces = [self._pieces.get(attempt) for attempt in attempts]
        absent = [
            attempt
            for attempt, piece in zip(attempts, pieces, strict=True)
            if piece is None or piece.missing
        ]
        if absent:
            message = f"attempts {absent} of evaluation {self.evaluation} are not staged here"
            raise NotStaged(message)
        return pairwise([piece.values for piece in pieces if piece is not None], np.add)

    def _new_piece(self, chunk: Chunk, values: Array) -> Piece:
        size = self.elements * values.itemsize
        if (len(self._pieces) + 1) * size > self.most_bytes:
            message = (
                f"{len(self._pieces)} pieces of {size} bytes are staged, and {self.most_bytes} "
                "bytes are the limit: let groups be larger, or take more shards"
            )
            raise StagingFull(message)
        made = Piece(np.zeros(self.elements, values.dtype), set(range(chunk.chunks)))
        self._pieces[chunk.attempt] = made
        return made
