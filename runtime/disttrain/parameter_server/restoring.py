"""Brings a holder's values back from a checkpoint, whoever wrote it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from disttrain.checkpoint import part_file
from disttrain.checkpoint import restore as restoring_ranges
from disttrain.checkpoint.errors import CheckpointRefused, Corrupt
from disttrain.checkpoint.manifest import FileEntry, Manifest
from disttrain.checkpoint.part_file import PartFile
from disttrain.checkpoint.reading import Checkpoint
from disttrain.checkpoint.restore import Restore
from disttrain.checkpoint.stores import CheckpointStore
from disttrain.checkpoint.vector_file import OnDisk
from disttrain.parameter_server import deliveries
from disttrain.parameter_server.deliveries import NOTHING, Delivered, SenderLife
from disttrain.parameter_server.errors import WrongSnapshot
from disttrain.parameter_server.values import Values
from disttrain.parameter_server.writing import TABLE
from disttrain.state.share import Share
from disttrain.telemetry import logs

LOG = logs.get(__name__)


MakeValues: TypeAlias = Callable[[Share, Mapping[str, str]], Values]
"""Values of zeros, from a holder's share, and what a file says of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What a holder needs of a checkpoint."""

    share: Share
    update_rule: str
    other_rules: tuple[str, ...] = ()
    """Of which the model's values are taken, and no state."""
    make: MakeValues
    earlier: Mapping[str, MakeValues] = field(default_factory=dict)
    """By update rule, room for what the stage before has left, its state included."""
    bring: Callable[[Checkpoint, Iterable[FileEntry]], None] = lambda _, __: None
    """Has files of a checkpoint at hand before they are read."""

    @property
    def holder(self) -> int:
        """Whose values."""
        return self.share.holder

    @property
    def holders(self) -> int:
        """How many there are."""
        return len(self.share.placement.holders)

    def room(self, update_rule: str) -> MakeValues | None:
        """How room is made for all that is of this rule; None if nothing is wanted of it."""
        return self.make if update_rule == self.update_rule else self.earlier.get(update_rule)


@dataclass(frozen=True, kw_only=True, slots=True)
class FormerShard:
    """A shard of the checkpoint."""

    version: int
    delivered: dict[SenderLife, Delivered]


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoredShard:
    """A shard as it was."""

    checkpoint: int
    values: Values
    version: int
    samples: int
    delivered: dict[SenderLife, Delivered] = field(default_factory=dict)
    description: dict[str, str] = field(default_factory=dict)
    """What the file says beside its tensors; of several, one of them."""
    is_divided_anew: bool = False
    """The checkpoint is of another number of shards."""
    damaged: tuple[int, ...] = ()
    """Newer checkpoints, which could not be restored."""
    saved_by: int = 0
    """The life that saved it at its stop; 0: it is of a checkpoint."""
    former: dict[int, FormerShard] = field(default_factory=dict)
    """Shards of the checkpoint for whose losses this one answers: see `answers_for`."""


def answers_for(shard: int, shards: int, former_shards: int) -> range:
    """Which shards of a run with another number of them one shard accounts for: each has one."""
    return range(shard, former_shards, shards)


def newest(
    store: CheckpointStore, job_uid: str, resume_from: Path | None
) -> tuple[list[Checkpoint], tuple[int, ...]]:
    """Checkpoints to try, the best first: this run's, then the one that it began with.

    And the numbers of those whose manifests are damaged, so that nobody knows whose they are.
    """
    # Before the list: what is committed meanwhile is not damaged.
    numbers = store.numbers()
    good = store.list()
    damaged = tuple(sorted(set(numbers) - {c.manifest.number for c in good}))
    own = [c for c in reversed(good) if c.manifest.job.uid == job_uid]
    if resume_from is None:
        return own, damaged
    first = store.read(resume_from)
    return [c for c in own if c.manifest.number > first.manifest.number] + [first], damaged


def restore(
    candidates: list[Checkpoint], wanted: Wanted, damaged: tuple[int, ...] = ()
) -> RestoredShard | None:
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
            return with_damaged(restored, passed_over.union(damaged))
    if damage is None and damaged:
        damage = Corrupt(f"checkpoint {max(damaged)}", "its manifest cannot be read")
    if damage is not None:
        raise damage
    return None


def with_damaged(restored: RestoredShard, damaged: Iterable[int]) -> RestoredShard:
    """It says which of the damaged checkpoints are newer than it is."""
    newer = sorted({number for number in damaged if number > restored.checkpoint}, reverse=True)
    if newer:
        LOG.error("goes on without checkpoints that are damaged", numbers=newer)
    return replace(restored, damaged=tuple(newer))


def _restore(checkpoint: Checkpoint, wanted: Wanted) -> RestoredShard:
    manifest = checkpoint.manifest
    room = wanted.room(manifest.update_rule)
    if room is None and manifest.update_rule not in wanted.other_rules:
        message = (
            f"{checkpoint.path} was made with the optimizer {manifest.update_rule}, the manifest "
            f"says {wanted.update_rule}; use the same one"
        )
        raise WrongSnapshot(message)
    with Restore(checkpoint) as source:
        sources = _sources(manifest, wanted.share) or {
            min(wanted.holder, len(manifest.holders) - 1)
        }
        former = answers_for(wanted.holder, wanted.holders, len(manifest.holders))
        files = _files(manifest, sources, former)
        wanted.bring(checkpoint, files)
        _check_hashes(checkpoint, files)
        description = source.file(min(sources)).metadata
        values = wanted.make(wanted.share, {}) if room is None else room(wanted.share, description)
        _read_values(source, values)
        if len(manifest.holders) == wanted.holders:
            values.on_disk = _lasting(checkpoint, wanted.holder, values)
        tables = {shard: table_of(source.file(shard)) for shard in sorted(sources.union(former))}
        samples = [int(source.file(shard).metadata.get("samples", "0")) for shard in sources]
    return RestoredShard(
        checkpoint=manifest.number,
        values=values,
        version=min(manifest.holders[shard].version for shard in sources),
        samples=min(samples),
        delivered=merge([tables[shard] for shard in sorted(sources)]),
        description=dict(description),
        is_divided_anew=len(manifest.holders) != wanted.holders,
        former={
            shard: FormerShard(version=manifest.holders[shard].version, delivered=tables[shard])
            for shard in former
        },
    )


def merge(tables: list[dict[SenderLife, Delivered]]) -> dict[SenderLife, Delivered]:
    """What every one of several shards has of a sender: the least of them.

    One shard's table stays as it is. With several, pushes under way are forgotten: they belong to
    lives that are over, since the number of shards only changes when the whole job is resumed.
    Samples are the most of them: what any shard holds and is done again counts as repeated.
    """
    if len(tables) == 1:
        return tables[0]
    least: dict[SenderLife, Delivered] = {}
    for life in sorted(set().union(*tables)):
        states = [table.get(life, NOTHING) for table in tables]
        behind = min(states, key=lambda state: state.sequence)
        least[life] = Delivered(
            sequence=behind.sequence,
            pushes=min(state.pushes for state in states),
            lease=behind.lease,
            lease_offset=behind.lease_offset,
            samples=max(state.samples for state in states),
        )
    return least


def _sources(manifest: Manifest, share: Share) -> set[int]:
    return {
        part.holder
        for vector, held in share.ranges.items()
        if vector.is_of_a_model and held.count
        for part in restoring_ranges.parts(manifest, vector, held)
    }


def _files(manifest: Manifest, sources: set[int], former: Iterable[int]) -> list[FileEntry]:
    """All files of the sources, and those with the others' tables."""
    holders = manifest.holders
    of_sources = [entry for holder in sorted(sources) for entry in holders[holder].files]
    return list(dict.fromkeys([*of_sources, *(holders[holder].file for holder in former)]))


def _check_hashes(checkpoint: Checkpoint, files: Iterable[FileEntry]) -> None:
    for entry in files:
        file = checkpoint.path / entry.name
        found = part_file.digest_of(file)
        if (found.bytes, found.hash) != (entry.bytes, entry.hash):
            raise Corrupt(file, f"its hash is {found.hash}, the manifest says {entry.hash}")


def _read_values(source: Restore, values: Values) -> None:
    for vector in values.vectors:
        held = values.share.range_of(vector)
        if held.count:
            source.read(vector, held, values.all_bytes(vector))


def _lasting(checkpoint: Checkpoint, holder: int, values: Values) -> dict[int, OnDisk]:
    """Files of vectors that are here as they are there; the hashes were right."""
    files = {own.vector: own.file for own in checkpoint.manifest.holders[holder].vectors}
    found = {content: files.get(vector) for vector, content in values.lasting.items()}
    return {
        content: OnDisk(entry=entry, folder=checkpoint.path)
        for content, entry in found.items()
        if entry is not None
    }


def table_of(file: PartFile) -> dict[SenderLife, Delivered]:
    """What the file says of every sender. Raises Corrupt."""
    if tuple(file.metadata.get("deliveries", "").split()) != deliveries.COLUMNS:
        raise Corrupt(file.path, f"its table {TABLE} has columns of another version")
    width = len(deliveries.COLUMNS)
    numbers = np.frombuffer(file.read_all(TABLE), dtype="<i8")
    if numbers.size % width:
        raise Corrupt(file.path, f"its table {TABLE} has {numbers.size} numbers")
    return deliveries.from_rows(numbers.reshape(-1, width).tolist())
