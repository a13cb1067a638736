"""Brings a holder's values back from a checkpoint, whoever wrote it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from disttrain.checkpoint import model_map, reading
from disttrain.checkpoint.errors import CheckpointRefused, Corrupt, WrongSnapshot
from disttrain.checkpoint.manifest import FileEntry, HolderEntry, Manifest
from disttrain.checkpoint.part_file import PartFile
from disttrain.checkpoint.reading import Checkpoint, Restore
from disttrain.checkpoint.stores import Store
from disttrain.holder.values import Notes, Table, Values
from disttrain.state.layout import ModelLayout
from disttrain.state.moves import Move, Moves
from disttrain.state.placement import Range
from disttrain.state.share import Share
from disttrain.state.vector import PARAMETERS, Vector
from disttrain.telemetry import logs

LOG = logs.get(__name__)

MakeValues: TypeAlias = Callable[[Share, Mapping[str, str]], Values]
"""Values of zeros, from a holder's share, and what a file says of them."""


class TableForm(NamedTuple):
    """A table in a holder's part of a checkpoint."""

    columns: tuple[str, ...]
    may_lack: bool = False
    """Not every part has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What a holder needs of a checkpoint."""

    share: Share
    layout: ModelLayout | None = None
    """What lies in the vectors; None: the same as in every checkpoint."""
    makers: Mapping[str, MakeValues]
    """By the update rule of a checkpoint that it can go on from, room for what is taken of it."""
    tables: Mapping[str, TableForm] = field(default_factory=dict)
    """By name."""
    bring: Callable[[Checkpoint, Iterable[FileEntry]], None] = lambda _, __: None
    """Has files of a checkpoint at hand before they are read."""

    @property
    def holders(self) -> int:
        return len(self.share.placement.holders)


@dataclass(frozen=True, kw_only=True, slots=True)
class Restored:
    """A holder as it was."""

    checkpoint: int
    update_rule: str
    """What the checkpoint was made with."""
    values: Values
    sources: Mapping[int, Notes]
    """By holder of that time, notes of the parts that the values are of."""
    previous: Mapping[int, Notes]
    """Of those that this holder answers for; see `answers_for`."""
    is_resharded: bool = False
    """The checkpoint is of another number of holders, or of a model that was divided otherwise."""
    damaged: tuple[int, ...] = ()
    """Newer checkpoints, which could not be restored."""


def answers_for(holder: int, holders: int, previous: int) -> range:
    """Which holders of a run with another number of them one accounts for: each has one."""
    return range(holder, previous, holders)


def newest(
    store: Store, job_uid: str, resume_from: Path | None
) -> tuple[list[Checkpoint], tuple[int, ...]]:
    """Checkpoints to try, the newest first: this job's, and the one that its run began with.

    And the numbers of those whose manifests are damaged, so that nobody knows whose they are.
    """
    begun_with = "" if resume_from is None else resume_from.name
    # Before the list: what is committed meanwhile is not damaged.
    numbers = store.numbers()
    good = store.list()
    damaged = tuple(sorted(set(numbers) - {c.manifest.number for c in good}))
    own = [c for c in good if c.manifest.job.uid == job_uid or c.path.name == begun_with]
    return own[::-1], damaged


def restore(
    candidates: list[Checkpoint], wanted: Wanted, damaged: tuple[int, ...] = ()
) -> Restored | None:
    """The newest one whose files are whole; None if there is none at all, damaged ones included.

    Raises Corrupt when every one of them is damaged, WrongSnapshot when it is of another job.
    """
    damage: CheckpointRefused | None = None
    for tried, checkpoint in enumerate(candidates):
        try:
            restored = _restore(checkpoint, wanted)
        except Corrupt as error:
            LOG.error("a checkpoint is damaged, the one before it is tried", error=error)
            damage = error
        else:
            passed_over = {each.manifest.number for each in candidates[:tried]}
            newer = newer_ones(passed_over.union(damaged), restored.checkpoint)
            return replace(restored, damaged=newer)
    if damage is None and damaged:
        damage = Corrupt(f"checkpoint {max(damaged)}", "its manifest cannot be read")
    if damage is not None:
        raise damage
    return None


def newer_ones(damaged: Iterable[int], checkpoint: int) -> tuple[int, ...]:
    """Damaged checkpoints without which a holder goes on, the newest first."""
    newer = sorted({number for number in damaged if number > checkpoint}, reverse=True)
    if newer:
        LOG.error("goes on without checkpoints that are damaged", numbers=newer)
    return tuple(newer)


def _restore(checkpoint: Checkpoint, wanted: Wanted) -> Restored:
    manifest, holder = checkpoint.manifest, wanted.share.holder
    make = wanted.makers.get(manifest.update_rule)
    if make is None:
        message = (
            f"{checkpoint.path} was made with the optimizer {manifest.update_rule}, the manifest "
            f"says {next(iter(wanted.makers))}; use the same one"
        )
        raise WrongSnapshot(message)
    with Restore(checkpoint) as source:
        places = _Places(manifest, wanted)
        sources = places.sources() or {min(holder, len(manifest.holders) - 1)}
        previous = answers_for(holder, wanted.holders, len(manifest.holders))
        files = _files(manifest, sources, previous)
        wanted.bring(checkpoint, files)
        for entry in files:
            reading.check(checkpoint.path / entry.name, entry)
        values = make(wanted.share, source.file(min(sources)).metadata)
        _read_values(source, values, places)
        is_resharded = places.have_moved or len(manifest.holders) != wanted.holders
        if not is_resharded:
            values.on_disk = _immutable(manifest.holders[holder], values)
        notes = {
            part: notes_of(source.file(part), manifest.holders[part].version, wanted)
            for part in sorted(sources.union(previous))
        }
    return Restored(
        checkpoint=manifest.number,
        update_rule=manifest.update_rule,
        values=values,
        sources={part: notes[part] for part in sorted(sources)},
        previous={part: notes[part] for part in previous},
        is_resharded=is_resharded,
    )


def notes_of(file: PartFile, version: int, wanted: Wanted) -> Notes:
    """What a part says beside its vectors. Raises Corrupt."""
    found = {
        name: _table(file, name, form.columns)
        for name, form in wanted.tables.items()
        if name in file.metadata or not form.may_lack
    }
    return Notes(version=version, metadata=file.metadata, tables=found)


def _table(file: PartFile, name: str, columns: tuple[str, ...]) -> Table:
    written = file.metadata.get(name, "").split()
    if not written or not set(written).issubset(columns) or len(set(written)) < len(written):
        raise Corrupt(file.path, f"its table {name} has columns of another version")
    numbers = np.frombuffer(file.read_all(name), dtype="<i8")
    if numbers.size % len(written):
        raise Corrupt(file.path, f"its table {name} has {numbers.size} numbers")
    # An earlier version did not write them all: the others are 0.
    rows = np.zeros((numbers.size // len(written), len(columns)), dtype=np.int64)
    rows[:, [columns.index(column) for column in written]] = numbers.reshape(-1, len(written))
    return Table(columns=columns, rows=rows.tolist())


class _Places:
    """Where a checkpoint has what a holder needs of it."""

    def __init__(self, manifest: Manifest, wanted: Wanted) -> None:
        """Raises WrongModel for the checkpoint of another one."""
        self._manifest, self._share = manifest, wanted.share
        self._moves: Moves | None = None
        after = wanted.layout
        if after is not None and model_map.pieces(after) != manifest.pieces:
            before = model_map.layout(manifest)
            model_map.require_same(*model_map.undivided(before, model_map.without_factors(after)))
            self._moves = Moves(before, after)

    @property
    def have_moved(self) -> bool:
        """Whether the model was divided otherwise."""
        return self._moves is not None

    def of(self, vector: Vector, held: Range) -> Iterator[Move]:
        """Where all elements of a range lie."""
        if self._moves is None:
            if held.count:
                yield Move(vector, held.first, 0, held.count)
            return
        stands_for = vector if vector.is_of_a_model else vector.beside(PARAMETERS)
        for move in self._moves.into(stands_for, held):
            yield move._replace(vector=move.vector.beside(vector.name))

    def sources(self) -> set[int]:
        """Holders of that time, by index."""
        return {
            part.holder
            for vector, held in self._share.ranges.items()
            if vector.is_of_a_model
            for move in self.of(vector, held)
            for part in reading.parts(self._manifest, move.vector, move.range)
        }


def _files(manifest: Manifest, sources: set[int], previous: Iterable[int]) -> list[FileEntry]:
    holders = manifest.holders
    of_sources = [entry for holder in sorted(sources) for entry in holders[holder].files]
    return list(dict.fromkeys([*of_sources, *(holders[holder].file for holder in previous)]))


def _read_values(source: Restore, values: Values, places: _Places) -> None:
    for vector in values.vectors:
        moves = list(places.of(vector, values.share.range_of(vector)))
        is_optional = vector.name in values.optional
        if is_optional and not any(source.has(move.vector, move.range) for move in moves):
            values.lacking.add(vector)
            continue
        room, size = values.all_bytes(vector).cast("B"), vector.element_bytes
        for move in moves:
            end = move.offset + move.count
            source.read(move.vector, move.range, room[move.offset * size : end * size])


def _immutable(holder: HolderEntry, values: Values) -> dict[int, FileEntry]:
    """Files of vectors that are here as they are there; the hashes were right."""
    files = {own.vector: own.file for own in holder.vectors}
    return {
        content: files[vector] for vector, content in values.immutable.items() if vector in files
    }
