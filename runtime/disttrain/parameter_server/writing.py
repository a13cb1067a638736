"""Writes a holder's part of a checkpoint, in a thread beside the updates."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from disttrain.checkpoint import tensor_file
from disttrain.checkpoint.element_types import FILE_TYPES
from disttrain.checkpoint.part_file import Content, Written
from disttrain.checkpoint.parts import Parts
from disttrain.parameter_server import deliveries, lasting
from disttrain.parameter_server.deliveries import Delivered, SenderLife
from disttrain.parameter_server.lasting import Lasting
from disttrain.parameter_server.snapshot import Snapshot
from disttrain.parameter_server.state import ShardState
from disttrain.parameter_server.values import Values
from disttrain.state.share import Part
from disttrain.state.vector import Vector

TABLE = "deliveries"
"""Name of the tensor with the at-most-once table."""


@dataclass(slots=True)
class Cut:
    """The shard at one moment: its picture and everything small."""

    number: int
    snapshot: Snapshot
    counts: Mapping[Vector, int]
    """Elements of each vector."""
    table: dict[SenderLife, Delivered]
    version: int
    metadata: dict[str, str]
    lasting: Lasting
    blocking_seconds: float = 0.0
    """Longest time that the shard spent on it without answering anybody."""
    written: Written | None = field(default=None)
    error: Exception | None = None
    seconds: float = 0.0

    def before_change(self, part: Part) -> None:
        """The shard's thread is about to change these elements."""
        began = time.perf_counter()
        self.snapshot.before_change(part)
        self.blocking_seconds = max(self.blocking_seconds, time.perf_counter() - began)

    def before_change_of(self, tensors: Sequence[Tensor]) -> None:
        """The same for whole vectors."""
        began = time.perf_counter()
        self.snapshot.before_change_of(tensors)
        self.blocking_seconds = max(self.blocking_seconds, time.perf_counter() - began)


def cut(number: int, state: ShardState, values: Values) -> Cut:
    """Take everything as it is now; costs no copy of values."""
    began = time.perf_counter()
    metadata = {
        **values.description,
        **state.description,
        "version": str(state.count),
        "samples": str(state.samples),
        "shard": str(state.index),
        "shards": str(len(values.share.placement.holders)),
        "incarnation": str(state.incarnation),
        "deliveries": " ".join(deliveries.COLUMNS),
    }
    made = Cut(
        number=number,
        snapshot=Snapshot(values),
        counts={vector: tensor.numel() for vector, tensor in values.vectors.items()},
        table=state.deliveries.copy(),
        version=state.count,
        metadata=metadata,
        lasting=lasting.of(values),
    )
    made.blocking_seconds = time.perf_counter() - began
    return made


class Writer:
    """One checkpoint on its way to disk. `is_over` may be asked by any thread."""

    def __init__(self, made: Cut, parts: Parts) -> None:
        self.cut = made
        self.parts = parts
        self._thread = threading.Thread(target=self._run, name="checkpoint-writer", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Written, or failed with `cut.error`."""
        return not self._thread.is_alive()

    def wait(self, timeout: float) -> bool:
        """Whether it is over within so many seconds."""
        self._thread.join(timeout)
        return self.is_over

    def _run(self) -> None:
        began = time.perf_counter()
        try:
            self.cut.written = write(self.cut, self.parts)
        except Exception as error:
            self.cut.error = error
        self.cut.seconds = time.perf_counter() - began


def write(made: Cut, parts: Parts) -> Written:
    """Write the shard's file, and beside it those of lasting vectors. Raises NotWritten."""
    shard = int(made.metadata["shard"])
    made.lasting.write(parts, shard, made.snapshot)
    return parts.write_part(shard, contents(made), made.metadata)


def contents(made: Cut) -> list[Content]:
    """The tensors of the file: all vectors, the table."""
    values = [
        _content(vector, count, made.snapshot.values_of(vector))
        for vector, count in made.counts.items()
        if vector not in made.lasting.contents
    ]
    rows = np.array(deliveries.to_rows(made.table), dtype="<i8")
    shape = (len(made.table), len(deliveries.COLUMNS))
    table = tensor_file.Tensor(name=TABLE, type="I64", shape=shape)
    return [*values, Content(tensor=table, pieces=[rows.tobytes()])]


def _content(vector: Vector, count: int, pieces: Iterator[memoryview]) -> Content:
    kind = FILE_TYPES[vector.element_type]
    tensor = tensor_file.Tensor(name=str(vector), type=kind, shape=(count,))
    return Content(tensor=tensor, pieces=pieces)
