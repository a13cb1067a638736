"""What `disttrain inspect` prints."""

from collections.abc import Iterable, Sequence

from disttrain.checkpoint import inspection, stores
from disttrain.checkpoint.inspection import Inspection, ModelPart, ShardPart, StoredTensor
from disttrain.cli import batch_decisions, checkpoint_folder
from disttrain.cluster import tables
from disttrain.coordinator.journal.state import State
from disttrain.job import terminal_text

_MOST_NAMES = 4
_UNITS = ("B", "kB", "MB", "GB", "TB")


def table(checkpoint: str) -> str:
    """A verified checkpoint as tables. Raises CheckpointError."""
    found, ledger = _inspect(checkpoint)
    return _text(found, batch_decisions.rows(ledger))


def json(checkpoint: str) -> str:
    """A verified checkpoint as one JSON object. Raises CheckpointError."""
    found, ledger = _inspect(checkpoint)
    return batch_decisions.with_decisions(inspection.to_json(found), ledger) + "\n"


def _inspect(checkpoint: str) -> tuple[Inspection, State | None]:
    with checkpoint_folder.resolved(checkpoint) as meant:
        found = inspection.inspect(stores.verify(meant.path), meant.said)
        return found, batch_decisions.read(meant.path)


def _text(found: Inspection, decisions: Sequence[Sequence[str]]) -> str:
    """Three tables: the checkpoint, its parts, the model's tensors. And `decisions`, if any."""
    parts = (_summary(found), _parts(found), _tensors(found), decisions)
    # Names come from a file, which may be a stranger's.
    shown = ([[*map(terminal_text.one_line, row)] for row in rows] for rows in parts if rows)
    return "\n\n".join(map(tables.text, shown)) + "\n"


def _summary(found: Inspection) -> list[Sequence[str]]:
    state = sum(tensor.bytes for shard in found.shards for tensor in shard.optimizer_state)
    return [
        ("checkpoint", found.path),
        ("job", f"{found.job} ({found.job_uid})"),
        ("written", f"{found.created:%Y-%m-%d %H:%M:%S %Z}"),
        ("samples", f"{found.samples:,}"),
        ("seed", str(found.seed)),
        ("optimizer", f"{found.update_rule}, state of {_size(state)}"),
        ("size", f"{_size(found.bytes)} in {found.hashes_verified} files"),
        ("hashes", f"all {found.hashes_verified} verified"),
    ]


def _parts(found: Inspection) -> list[Sequence[str]]:
    head = ("part", "version", "size", "values", "optimizer state", "tables", "hash")
    return [head, *(_part(shard) for shard in found.shards)]


def _part(shard: ShardPart) -> Sequence[str]:
    return (
        str(shard.index),
        str(shard.version),
        _size(shard.bytes),
        _names(shard.values),
        _many(shard.optimizer_state),
        _names(shard.tables),
        shard.hash,
    )


def _names(tensors: Iterable[StoredTensor]) -> str:
    return ", ".join(f"{tensor.name} {tensor.elements:,}" for tensor in tensors) or "-"


def _many(tensors: Sequence[StoredTensor]) -> str:
    """A batch method keeps dozens of vectors, whose names would make a line that nobody reads."""
    if len(tensors) <= _MOST_NAMES:
        return _names(tensors)
    return f"{len(tensors)} vectors, {_size(sum(tensor.bytes for tensor in tensors))}"


def _tensors(found: Inspection) -> list[Sequence[str]]:
    head = ("tensor", "shape", "type", "elements", "vector")
    total = sum(tensor.elements for tensor in found.tensors)
    rows = [head, *(_tensor(tensor) for tensor in found.tensors)]
    return [*rows, (f"{len(found.tensors)} tensors", "", "", f"{total:,}", "")]


def _tensor(tensor: ModelPart) -> Sequence[str]:
    shape = " x ".join(map(str, tensor.shape)) or "scalar"
    names = " = ".join((tensor.name, *tensor.aliases))
    return (names, shape, tensor.dtype, f"{tensor.elements:,}", tensor.vector)


def _size(count: int) -> str:
    value, unit = float(count), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {_UNITS[unit]}" if unit else f"{count} B"
