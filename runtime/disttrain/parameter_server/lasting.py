"""Vectors that stay as they are over several checkpoints: each is written to disk once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from disttrain.checkpoint import names, tensor_file
from disttrain.checkpoint.element_types import FILE_TYPES, VECTOR_TYPES
from disttrain.checkpoint.manifest import FileEntry, VectorEntry
from disttrain.checkpoint.parts import Parts
from disttrain.checkpoint.shard_file import Content
from disttrain.checkpoint.vector_file import OnDisk
from disttrain.parameter_server.snapshot import Snapshot
from disttrain.parameter_server.values import Values
from disttrain.transport.header import Vector


@dataclass(slots=True)
class Lasting:
    """Those of one moment; `write` belongs to the thread that reads the snapshot."""

    values: Values
    trainable: Vector
    count: int
    contents: Mapping[str, int]
    """By name, the numbers of their contents."""
    on_disk: Mapping[int, OnDisk]
    files: dict[str, FileEntry] = field(default_factory=dict)
    """By name."""
    written_bytes: int = 0

    @property
    def entries(self) -> tuple[VectorEntry, ...]:
        """As the checkpoint's manifest has them."""
        return tuple(
            VectorEntry(tensor=names.state(self.trainable, name), file=file)
            for name, file in self.files.items()
        )

    def write(self, parts: Parts, shard: int, snapshot: Snapshot) -> None:
        """Put all into it; what an earlier checkpoint has is shared. Raises NotWritten."""
        for name, content in self.contents.items():
            known = self.on_disk.get(content)
            if known and parts.share(known):
                snapshot.leave_out(name)
                self.files[name] = known.entry
        for name in self.contents.keys() - self.files.keys():
            draft = names.vector_draft(shard, name)
            self.files[name] = parts.write_vector(draft, self._content(name, snapshot))
            self.written_bytes += self.files[name].bytes

    def remember(self, folder: Path) -> None:
        """They are all in this folder now, for the next checkpoint; the shard's thread."""
        found = {
            content: OnDisk(entry=self.files[name], folder=folder)
            for name, content in self.contents.items()
        }
        self.values.on_disk = found

    def _content(self, name: str, snapshot: Snapshot) -> Content:
        kind = FILE_TYPES[VECTOR_TYPES[self.trainable]]
        tensor = tensor_file.Tensor(name=names.VECTOR, type=kind, shape=(self.count,))
        return Content(tensor=tensor, pieces=snapshot.state_of(name))


def of(values: Values) -> Lasting:
    """As they are now; costs no copy."""
    return Lasting(
        values=values,
        trainable=values.trainable,
        count=values.ranges[values.trainable].count,
        contents=dict(values.lasting),
        on_disk=dict(values.on_disk),
    )
