"""A checkpoint as one file that plain PyTorch loads."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from disttrain.checkpoint import copies, stores, tensor_file
from disttrain.checkpoint.durable import DurableFile
from disttrain.checkpoint.element_types import DTYPES, TYPES, OutOfRange, Values
from disttrain.checkpoint.errors import Corrupt, NoVector
from disttrain.checkpoint.manifest import Manifest, ModelTensor, Piece
from disttrain.checkpoint.reading import Checkpoint, Restore
from disttrain.checkpoint.tensor_file import Tensor
from disttrain.job.average import AVERAGE
from disttrain.state.placement import Range
from disttrain.state.vector import BUFFERS, FROZEN, PARAMETERS

HASH_KEY = "disttrain.sha256"
"""Metadata: SHA-256 of everything behind the header, so that Python alone can check it."""

_READ_ELEMENTS = 1024 * 1024
_NO_HASH = "0" * 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """What was written."""

    tensors: int
    """Names in the file; a tied tensor is there under each of its names."""
    bytes: int
    sha256: str
    """Of the data, as in the file's metadata."""


def export(checkpoint: Path, out: Path, vector: str | None = None) -> Exported:
    """Write the model of a checkpoint folder to `out`, after checking all hashes.

    `vector`: the name of what is taken for the trained parameters. None: their moving average,
    which evaluations measured too, if the job keeps one, and else the parameters.

    The file has the model's own names, all names of tied tensors and the model's own types, so
    that `load_state_dict(safetensors.torch.load_file(out))` takes it. Streamed: needs memory for
    some megabytes (a tensor divided over partitions: for that tensor). Replaces `out`, whole or
    not at all. Raises NoCheckpoint, NoVector, Corrupt, NotWritten.
    """
    return write(stores.verify(checkpoint), out, vector)


def export_named(checkpoint: str, out: str) -> None:
    """The same where both may be in an object store. Raises CheckpointError."""
    with copies.checkpoint_at(checkpoint) as folder, copies.file_for(out) as file:
        export(folder, file)


def write(checkpoint: Checkpoint, out: Path, vector: str | None = None) -> Exported:
    """As `export`, of a checkpoint that was verified."""
    manifest = checkpoint.manifest
    named = _named(manifest)
    tensors = [Tensor(name=name, type=_file_type(one), shape=one.shape) for name, one in named]
    with Restore(checkpoint) as restore:
        restore.check_files()
        taken = _taken(restore, vector)
        pieces = _pieces(manifest, taken)
        contents = (
            memoryview(values.tobytes())
            for _, tensor in named
            for values in _values(restore, tensor, pieces[tensor.name])
        )
        return write_tensors(out, tensors, _metadata(manifest, taken), contents)


def write_tensors(
    out: Path,
    tensors: Sequence[Tensor],
    said: Mapping[str, str],
    contents: Iterable[memoryview],
) -> Exported:
    """Write a file of these tensors, whose bytes come in their order; `said`: its metadata.

    Replaces `out`, whole or not at all. Raises NotWritten, and what `contents` raises.
    """
    metadata = {"format": "pt", **said}  # Libraries around PyTorch ask for it.
    header = tensor_file.encode(tensors, metadata | {HASH_KEY: _NO_HASH})
    found = hashlib.sha256()
    with DurableFile(out.absolute()) as file:
        file.write(header)
        for content in contents:
            found.update(content)
            file.write(content)
        known = metadata | {HASH_KEY: found.hexdigest()}
        file.overwrite(0, tensor_file.encode(tensors, known))
    size = len(header) + sum(tensor.nbytes for tensor in tensors)
    return Exported(tensors=len(tensors), bytes=size, sha256=found.hexdigest())


def _named(manifest: Manifest) -> list[tuple[str, ModelTensor]]:
    """Every name with its tensor, wide elements first: no element lies across its own width."""
    named = [(name, t) for t in manifest.tensors for name in (t.name, *t.aliases)]
    return sorted(named, key=lambda found: -tensor_file.TYPE_BYTES[_file_type(found[1])])


def _file_type(tensor: ModelTensor) -> str:
    return TYPES[tensor.dtype].file_type


def _taken(restore: Restore, name: str | None) -> str:
    """What takes the place of the trained parameters. Raises NoVector."""
    manifest = restore.manifest
    known = {
        vector.name
        for entry in manifest.holders
        for vector, held in manifest.placement.ranges(entry.index).items()
        if vector.name not in {FROZEN, BUFFERS} and restore.has(vector, held)
    }
    if name is None:
        return AVERAGE if AVERAGE in known else PARAMETERS
    if name not in known:
        message = (
            f"checkpoint {manifest.number} has no vector {name!r} that is as long as the trained "
            f"parameters; name one of {', '.join(sorted(known))}"
        )
        raise NoVector(message)
    return name


def _metadata(manifest: Manifest, taken: str) -> dict[str, str]:
    other = {} if taken == PARAMETERS else {"disttrain.vector": taken}
    return {
        **other,
        "disttrain.job": manifest.job.name,
        "disttrain.job_uid": manifest.job.uid,
        "disttrain.checkpoint": str(manifest.number),
        "disttrain.samples": str(manifest.samples),
    }


def _pieces(manifest: Manifest, taken: str) -> dict[str, list[Piece]]:
    pieces = defaultdict(list)
    for piece in manifest.pieces:
        vector = piece.vector.beside(taken) if piece.vector.is_trained else piece.vector
        pieces[piece.tensor].append(replace(piece, vector=vector))
    return pieces


def _values(restore: Restore, tensor: ModelTensor, pieces: list[Piece]) -> Iterator[Values]:
    narrow = TYPES[tensor.dtype].narrow
    parts = _stream(restore, pieces[0]) if len(pieces) == 1 else _assemble(restore, tensor, pieces)
    for values in parts:
        try:
            yield narrow(values)
        except OutOfRange as error:
            file = Path(f"checkpoint {restore.manifest.number}, tensor '{tensor.name}'")
            raise Corrupt(file, str(error)) from error


def _stream(restore: Restore, piece: Piece) -> Iterator[Values]:
    """The elements of a piece, some at a time. The only piece of a tensor is all of it."""
    end = piece.first + piece.elements
    for first in range(piece.first, end, _READ_ELEMENTS):
        values = np.empty(min(_READ_ELEMENTS, end - first), DTYPES[piece.vector.element_type])
        restore.read(piece.vector, Range(first=first, end=first + values.size), values.data)
        yield values


def _assemble(restore: Restore, tensor: ModelTensor, pieces: list[Piece]) -> Iterator[Values]:
    whole = np.empty(tensor.shape, DTYPES[pieces[0].vector.element_type])
    for piece in pieces:
        box = tuple(slice(part.first, part.end) for part in piece.slices)
        read = np.concatenate([np.empty(0, whole.dtype), *_stream(restore, piece)])
        whole[box] = read.reshape(whole[box].shape)
    yield whole.reshape(-1)
