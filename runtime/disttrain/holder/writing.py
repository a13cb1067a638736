"""Writes a holder's part of a checkpoint, in a thread beside the updates."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor

from disttrain.checkpoint import names, tensor_file
from disttrain.checkpoint.element_types import FILE_TYPES
from disttrain.checkpoint.manifest import FileEntry, VectorEntry
from disttrain.checkpoint.part_file import Content, Written
from disttrain.checkpoint.stores import Parts
from disttrain.holder.snapshot import Snapshot
from disttrain.holder.values import Notes, Table, Values
from disttrain.state.share import Part
from disttrain.state.vector import Vector


@dataclass(slots=True)
class ImmutableVectors:
    """Those of one moment; `write` belongs to the thread that reads the snapshot."""

    values: Values
    contents: Mapping[Vector, int]
    """The numbers of their contents."""
    on_disk: Mapping[int, FileEntry]
    files: dict[Vector, FileEntry] = field(default_factory=dict)
    written_bytes: int = 0

    @property
    def entries(self) -> tuple[VectorEntry, ...]:
        """As the checkpoint's manifest has them."""
        return tuple(VectorEntry(vector=vector, file=file) for vector, file in self.files.items())

    def write(self, parts: Parts, holder: int, snapshot: Snapshot) -> None:
        """Put all into it; what an earlier checkpoint has is shared. Raises NotWritten."""
        for vector, content in self.contents.items():
            known = self.on_disk.get(content)
            if known and parts.share(known):
                snapshot.leave_out(vector)
                self.files[vector] = known
        for vector in self.contents.keys() - self.files.keys():
            draft = names.vector_draft(holder, vector)
            self.files[vector] = parts.write_vector(draft, self._content(vector, snapshot))
            self.written_bytes += self.files[vector].bytes

    def remember(self) -> None:
        """They are all on disk now, for the next checkpoint; the shard's thread."""
        self.values.on_disk = {
            content: self.files[vector] for vector, content in self.contents.items()
        }

    def _content(self, vector: Vector, snapshot: Snapshot) -> Content:
        kind, count = FILE_TYPES[vector.element_type], self.values.share.range_of(vector).count
        tensor = tensor_file.Tensor(name=names.VECTOR, type=kind, shape=(count,))
        return Content(tensor=tensor, pieces=snapshot.values_of(vector))


@dataclass(slots=True)
class Cut:
    """A holder at one moment: its picture and everything small."""

    number: int
    snapshot: Snapshot
    counts: Mapping[Vector, int]
    """Elements of each vector."""
    notes: Notes
    holder: int
    immutable: ImmutableVectors
    blocking_seconds: float = 0.0
    """Longest time that the holder spent on it without answering anybody."""
    written: Written | None = field(default=None)
    error: Exception | None = None
    seconds: float = 0.0

    def before_change(self, part: Part) -> None:
        began = time.perf_counter()
        self.snapshot.before_change(part)
        self.blocking_seconds = max(self.blocking_seconds, time.perf_counter() - began)

    def before_change_of(self, tensors: Sequence[Tensor]) -> None:
        began = time.perf_counter()
        self.snapshot.before_change_of(tensors)
        self.blocking_seconds = max(self.blocking_seconds, time.perf_counter() - began)


def cut(number: int, values: Values, notes: Notes) -> Cut:
    """Take everything as it is now; costs no copy of values."""
    began = time.perf_counter()
    made = Cut(
        number=number,
        snapshot=Snapshot(values),
        counts={vector: tensor.numel() for vector, tensor in values.vectors.items()},
        notes=replace(notes, metadata={**values.description, **notes.metadata}),
        holder=values.share.holder,
        immutable=ImmutableVectors(values, dict(values.immutable), dict(values.on_disk)),
    )
    made.blocking_seconds = time.perf_counter() - began
    return made


def _start(run: Callable[[], None]) -> None:
    threading.Thread(target=run, name="checkpoint-writer", daemon=True).start()


class Writer:
    """One checkpoint on its way to disk. `is_over` may be asked by any thread."""

    def __init__(
        self, made: Cut, parts: Parts, start: Callable[[Callable[[], None]], object] = _start
    ) -> None:
        """`start` runs it in a thread."""
        self.cut = made
        self.parts = parts
        self._is_over = threading.Event()
        start(self._run)

    @property
    def is_over(self) -> bool:
        """Written, or failed with `cut.error`."""
        return self._is_over.is_set()

    def wait(self, timeout: float) -> bool:
        return self._is_over.wait(timeout)

    def _run(self) -> None:
        began = time.perf_counter()
        try:
            self.cut.written = write(self.cut, self.parts)
        except Exception as error:
            self.cut.error = error
        finally:
            self.cut.seconds = time.perf_counter() - began
            self._is_over.set()


def write(made: Cut, parts: Parts) -> Written:
    """Write the holder's file, and beside it those of immutable vectors. Raises NotWritten."""
    made.immutable.write(parts, made.holder, made.snapshot)
    return parts.write_part(made.holder, contents(made), metadata(made))


def metadata(made: Cut) -> dict[str, str]:
    columns = {name: " ".join(table.columns) for name, table in made.notes.tables.items()}
    return {**made.notes.metadata, **columns, "version": str(made.notes.version)}


def contents(made: Cut) -> list[Content]:
    values = [
        _values(vector, count, made.snapshot.values_of(vector))
        for vector, count in made.counts.items()
        if vector not in made.immutable.contents
    ]
    return values + [_table(name, table) for name, table in made.notes.tables.items()]


def _values(vector: Vector, count: int, pieces: Iterator[memoryview]) -> Content:
    kind = FILE_TYPES[vector.element_type]
    tensor = tensor_file.Tensor(name=str(vector), type=kind, shape=(count,))
    return Content(tensor=tensor, pieces=pieces)


def _table(name: str, table: Table) -> Content:
    rows = np.array(table.rows, dtype="<i8")
    shape = (len(table.rows), len(table.columns))
    return Content(
        tensor=tensor_file.Tensor(name=name, type="I64", shape=shape), pieces=[rows.tobytes()]
    )
