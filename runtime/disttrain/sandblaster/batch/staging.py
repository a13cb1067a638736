"""What a shard holds of the attempts at groups until one of each is committed. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from disttrain.sandblaster.batch.pairwise import Folding
from disttrain.sandblaster.errors import NotStaged, OrderRefused, StagingFull, WrongEvaluation
from disttrain.sandblaster.kernels import Array


@dataclass(slots=True)
class Piece:
    """One attempt's sum of gradients, as far as it has arrived."""

    group: int
    values: Array
    missing: set[int]
    """Chunks that have not arrived."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """A part of a piece, as a message carries it."""

    evaluation: int
    group: int
    attempt: int
    number: int
    chunks: int
    """Of the whole piece."""
    first: int
    """Place of its first element in the piece."""


class Staging:
    """What has arrived of the evaluation that is under way. Belongs to one thread.

    Winners may be told one by one as they are decided: they are added up at once, and the copies
    of their groups are dropped. So it holds the attempts that are undecided, and the sums of
    neighbouring groups that wait for more: about as many as the groups' number has digits.
    """

    def __init__(self, *, elements: int, most_bytes: int) -> None:
        self.evaluation = 0
        """0: none is under way."""
        self._elements = elements
        self._most_bytes = most_bytes
        self._pieces: dict[int, Piece] = {}
        self._winners: dict[int, int] = {}
        """Attempts that were added up, by group."""
        self._sum: Folding[Array] = _folding(0)

    def begin(self, evaluation: int, groups: int) -> None:
        """Forget everything of other evaluations. Said again, it changes nothing."""
        if evaluation != self.evaluation:
            self.evaluation = evaluation
            self._pieces.clear()
            self._winners.clear()
            self._sum = _folding(groups)

    def stage(self, chunk: Chunk, values: Array) -> bool:
        """Keep a chunk; whether nothing more of its attempt is needed now.

        A chunk that came before is left alone, and so is one of a group that has its winner.
        Raises WrongEvaluation or StagingFull.
        """
        if chunk.evaluation != self.evaluation:
            message = f"evaluation {self.evaluation} is under way, got a part of {chunk.evaluation}"
            raise WrongEvaluation(message)
        if chunk.group in self._winners:
            return True
        piece = self._pieces.get(chunk.attempt) or self._new_piece(chunk, values)
        if chunk.number in piece.missing:
            piece.values[chunk.first : chunk.first + len(values)] = values
            piece.missing.discard(chunk.number)
        return not piece.missing

    def decide(self, evaluation: int, winners: Mapping[int, int]) -> None:
        """Add up the attempts that won, by group. Said again, or too late, it changes nothing.

        Changes nothing and raises NotStaged if one of them is not here as a whole, OrderRefused if
        an earlier life of the coordinator, which was over, has told of others.
        """
        if evaluation != self.evaluation:
            return
        new = {group: one for group, one in winners.items() if group not in self._winners}
        self._check(winners, new)
        for group, attempt in new.items():
            self._winners[group] = attempt
            self._sum.put(group, self._pieces[attempt].values)
        for attempt in [one for one, piece in self._pieces.items() if piece.group in new]:
            del self._pieces[attempt]

    def total(self, attempts: Sequence[int]) -> Array:
        """The sum of one attempt for each group, by the groups' places. Raises as `decide`."""
        self.decide(self.evaluation, dict(enumerate(attempts)))
        if self._sum.total is None:
            message = f"{len(attempts)} attempts do not make evaluation {self.evaluation} complete"
            raise NotStaged(message)
        return self._sum.total

    def _check(self, winners: Mapping[int, int], new: Mapping[int, int]) -> None:
        others = {
            group: one for group, one in self._winners.items() if winners.get(group, one) != one
        }
        if others:
            message = f"other attempts have won evaluation {self.evaluation} here: {others}"
            raise OrderRefused(message)
        here = {one for one, piece in self._pieces.items() if not piece.missing}
        if absent := [one for one in new.values() if one not in here]:
            message = f"attempts {absent} of evaluation {self.evaluation} are not staged here"
            raise NotStaged(message)

    def _new_piece(self, chunk: Chunk, values: Array) -> Piece:
        size, held = self._elements * values.itemsize, len(self._pieces) + self._sum.held
        if (held + 1) * size > self._most_bytes:
            message = (
                f"{held} pieces of {size} bytes are staged, and {self._most_bytes} bytes are the "
                "limit: let groups be larger, or take more shards"
            )
            raise StagingFull(message)
        empty = np.zeros(self._elements, values.dtype)
        made = Piece(chunk.group, empty, set(range(chunk.chunks)))
        self._pieces[chunk.attempt] = made
        return made


def _folding(groups: int) -> Folding[Array]:
    return Folding(groups, lambda one, other: np.add(one, other, out=one))
