"""All that Sandblaster is on one shard: vectors, staged gradients, and the programs on both. Pure.

An attempt at a group is staged until one attempt of each group is committed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from disttrain.sandblaster import errors
from disttrain.sandblaster.batch.batches import Folding, Run
from disttrain.sandblaster.batch.groups import Worker
from disttrain.sandblaster.batch.programs import Decided, Performed, Program, ProgramLog
from disttrain.sandblaster.kernels import Array
from disttrain.sandblaster.vectors import Vectors


@dataclass(slots=True)
class Piece:
    """One attempt's sum of gradients, as far as it has arrived."""

    group: int
    sender: Worker
    values: Array
    missing: set[int]
    """Chunks that have not arrived."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """A part of a piece, as a message carries it."""

    sender: Worker
    evaluation: int
    group: int
    attempt: int
    number: int
    """Its place among the chunks of the piece, which are all of one length but the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """What every piece of a shard looks like."""

    elements: int
    chunk_elements: int
    element_type: DTypeLike

    @property
    def chunks(self) -> int:
        """How many a piece has; an empty one has one that is empty."""
        return max(1, -(-self.elements // self.chunk_elements))

    @property
    def bytes(self) -> int:
        return self.elements * np.dtype(self.element_type).itemsize

    def place(self, number: int) -> slice:
        first = number * self.chunk_elements
        return slice(first, min(first + self.chunk_elements, self.elements))


class Staging:
    """What has arrived of the evaluation that is under way. Belongs to one thread.

    Winners may be told one by one as they are decided: they are added up at once, and the copies
    of their groups are dropped. So it holds the attempts that are undecided, and the sums of
    neighbouring groups that wait for more: about as many as the groups' number has digits.
    """

    def __init__(self, layout: Layout, *, most_bytes: int) -> None:
        self.evaluation = 0
        """0: none is under way."""
        self._places: dict[int, tuple[int, int]] = {}
        """Run, and place in it, by group."""
        self.layout = layout
        self._most_bytes = most_bytes
        self._pieces: dict[int, Piece] = {}
        self._winners: dict[int, int] = {}
        """Attempts that were added up, by group."""
        self._sums: list[Folding[Array]] = []
        """By run."""

    @property
    def held_bytes(self) -> int:
        held = sum(folding.held for folding in self._sums)
        return (len(self._pieces) + held) * self.layout.bytes

    def begin(self, evaluation: int, groups: int, runs: Sequence[Run] = ()) -> None:
        """Forget everything of other evaluations. Said again, it changes nothing.

        Without runs the groups are all from 0 on, in one sum.
        """
        if evaluation != self.evaluation:
            self.evaluation = evaluation
            self._pieces.clear()
            self._winners.clear()
            sums = [run.groups for run in runs] if runs else [range(groups)]
            self._places = {
                group: (run, place)
                for run, members in enumerate(sums)
                for place, group in enumerate(members)
            }
            self._sums = [_folding(len(members)) for members in sums]

    def stage(self, chunk: Chunk, values: Array) -> bool:
        """Keep a chunk; whether nothing more of its attempt is needed now.

        A chunk that came before is left alone, and so is one of a group that has its winner.
        Raises WrongEvaluation, WrongChunk or StagingFull.
        """
        if chunk.evaluation != self.evaluation:
            message = f"evaluation {self.evaluation} is under way, got a part of {chunk.evaluation}"
            raise errors.WrongEvaluation(message)
        self._check_chunk(chunk, values)
        if chunk.group in self._winners:
            return True
        piece = self._pieces.get(chunk.attempt) or self._new_piece(chunk)
        if (piece.group, piece.sender) != (chunk.group, chunk.sender):
            message = (
                f"attempt {chunk.attempt} is at group {piece.group} and of {piece.sender}, "
                f"got a part for group {chunk.group} of {chunk.sender}"
            )
            raise errors.WrongChunk(message)
        if chunk.number in piece.missing:
            piece.values[self.layout.place(chunk.number)] = values
            piece.missing.discard(chunk.number)
        return not piece.missing

    def forget(self, sender: Worker) -> None:
        """Drop what an ended incarnation will never complete. What is complete may still win."""
        unfinished = [
            attempt
            for attempt, piece in self._pieces.items()
            if piece.missing
            and piece.sender.index == sender.index
            and piece.sender.incarnation <= sender.incarnation
        ]
        for attempt in unfinished:
            del self._pieces[attempt]

    def decide(self, evaluation: int, winners: Mapping[int, int]) -> None:
        """Add up the attempts that won, by group. Said again, or too late, it changes nothing.

        Changes nothing and raises NotStaged if one of them is not here as a whole, ProgramRefused
        if an earlier incarnation of the coordinator, which was over, has told of others.
        """
        if evaluation != self.evaluation:
            return
        new = {group: one for group, one in winners.items() if group not in self._winners}
        self._check(winners, new)
        for group, attempt in new.items():
            self._winners[group] = attempt
            run, place = self._places[group]
            self._sums[run].put(place, self._pieces[attempt].values)
        for attempt in [one for one, piece in self._pieces.items() if piece.group in new]:
            del self._pieces[attempt]

    def totals(self, attempts: Sequence[int]) -> list[Array]:
        """The sum of each run, of one attempt for each group, by the groups' places.

        Raises as `decide`.
        """
        if len(attempts) != len(self._places):
            message = f"{len(attempts)} attempts do not make evaluation {self.evaluation} complete"
            raise errors.NotStaged(message)
        self.decide(self.evaluation, dict(zip(self._places, attempts, strict=True)))
        return [folding.total for folding in self._sums if folding.total is not None]

    def _check(self, winners: Mapping[int, int], new: Mapping[int, int]) -> None:
        others = {
            group: one for group, one in self._winners.items() if winners.get(group, one) != one
        }
        if others:
            message = f"other attempts have won evaluation {self.evaluation} here: {others}"
            raise errors.ProgramRefused(message)
        if absent := {group: one for group, one in new.items() if not self._has(group, one)}:
            message = (
                f"of evaluation {self.evaluation} these attempts, by group, are not staged here: "
                f"{absent}"
            )
            raise errors.NotStaged(message)

    def _has(self, group: int, attempt: int) -> bool:
        piece = self._pieces.get(attempt)
        return piece is not None and piece.group == group and not piece.missing

    def _check_chunk(self, chunk: Chunk, values: Array) -> None:
        if chunk.group not in self._places:
            message = f"group {chunk.group} of {len(self._places)}"
            raise errors.WrongChunk(message)
        if not 0 <= chunk.number < self.layout.chunks:
            message = f"chunk {chunk.number} of {self.layout.chunks}"
            raise errors.WrongChunk(message)
        place = self.layout.place(chunk.number)
        wanted = place.stop - place.start, np.dtype(self.layout.element_type)
        if (len(values), values.dtype) != wanted:
            message = (
                f"chunk {chunk.number} has {len(values)} elements of {values.dtype}, "
                f"wanted {wanted[0]} of {wanted[1]}"
            )
            raise errors.WrongChunk(message)

    def _new_piece(self, chunk: Chunk) -> Piece:
        if self.held_bytes + self.layout.bytes > self._most_bytes:
            message = (
                f"{self.held_bytes} bytes are staged in pieces of {self.layout.bytes}, and "
                f"{self._most_bytes} are the limit: let groups be larger, or take more shards"
            )
            raise errors.StagingFull(message)
        empty = np.zeros(self.layout.elements, self.layout.element_type)
        made = Piece(chunk.group, chunk.sender, empty, set(range(self.layout.chunks)))
        self._pieces[chunk.attempt] = made
        return made


def _folding(groups: int) -> Folding[Array]:
    return Folding(groups, lambda one, other: np.add(one, other, out=one))


class BatchShard:
    """One incarnation of a shard. Belongs to one thread."""

    def __init__(
        self,
        layout: Layout,
        most_staged_bytes: int,
        vectors: Vectors | None = None,
        log: ProgramLog | None = None,
    ) -> None:
        """`vectors`, `log`: of an earlier incarnation, both of one moment; None: there is none."""
        self.vectors = vectors or Vectors(layout.elements, layout.element_type)
        self.log = log or ProgramLog()
        self.staging = Staging(layout, most_bytes=most_staged_bytes)

    def decide(self, news: Decided) -> None:
        """See `Staging.decide`. Raises ProgramRefused for news of an old coordinator, too."""
        self.log.check(news.coordinator)
        self.staging.decide(news.evaluation, news.winners)

    def carry_out(self, program: Program) -> Performed:
        """See `ProgramLog.carry_out`. Raises NotStaged and UnknownVector, too."""
        return self.log.carry_out(program, self._perform)

    def _perform(self, program: Program) -> tuple[float, ...]:
        if program.commits:
            totals = self.staging.totals(program.commits)
            for run, total in zip(program.sums, totals, strict=True):
                made = self.vectors.make(run.vector)
                np.divide(total, run.divisor or run.samples, out=made, casting="same_kind")
        scalars = self.vectors.perform(program.operations)
        self.staging.begin(program.evaluation, program.groups, program.runs)
        return scalars
