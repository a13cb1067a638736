"""Vectors that stay as they are over several checkpoints: each is written to disk once."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from disttrain.checkpoint import names, tensor_file
from disttrain.checkpoint.element_types import FILE_TYPES
from disttrain.checkpoint.manifest import FileEntry, VectorEntry
from disttrain.checkpoint.part_file import Content
from disttrain.checkpoint.stores import Parts
from disttrain.holder.snapshot import Snapshot
from disttrain.holder.values import Values
from disttrain.state.vector import Vector


@dataclass(slots=True)
class Lasting:
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


def of(values: Values) -> Lasting:
    """As they are now; costs no copy."""
    return Lasting(
        values=values,
        contents=dict(values.lasting),
        on_disk=dict(values.on_disk),
    )
