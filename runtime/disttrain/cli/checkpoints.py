"""Commands on a checkpoint: `disttrain inspect` and `export`."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from disttrain.checkpoint import export as exporting
from disttrain.checkpoint import inspection, stores
from disttrain.checkpoint.errors import AlreadyThere
from disttrain.checkpoint.inspection import Inspection, ModelPart, ShardPart, StoredTensor
from disttrain.cli import checkpoint_folder
from disttrain.cluster import kubectl_text
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.status import status
from disttrain.coordinator.strategies.batch import status as batch_status
from disttrain.job import terminal_text

_MOST_NAMES = 4
_UNITS = ("B", "kB", "MB", "GB", "TB")
_DECISION = ("evaluation", "iteration", "step", "loss", "slope", "verdict")
"""What is shown of a batch method's decision, of which there is one for each evaluation."""

CheckpointPath = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="Folder of a checkpoint (runs/X/checkpoints/00000003), or an output folder or a "
        "folder of checkpoints, of which the newest one is taken; or the place of a job in an "
        "object store (s3://bucket/prefix/NAME-UID), or of one of its checkpoints.",
    ),
]


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]


def inspect(checkpoint: CheckpointPath, *, as_json: AsJson = False) -> None:
    """Show a checkpoint: its job, parts, files, tensors and optimizer state.

    Reads every file and checks its hash. Exits with 1 if one is damaged, and names it and the
    newest older checkpoint that is whole.

    Example: disttrain inspect runs/digits
    """
    typer.echo(inspected(checkpoint, as_json=as_json), nl=False)


Out = Annotated[Path, typer.Argument(metavar="OUT", help="The file to write; must not exist.")]


VectorName = Annotated[
    str | None,
    typer.Option(
        "--vector",
        metavar="NAME",
        help="What is taken for the trained parameters: parameters, average, or another vector "
        "that `disttrain inspect` shows. Default: the average if the job keeps one "
        "(strategy.downpour.ema), as its evaluations do, else the parameters.",
    ),
]


def export(checkpoint: CheckpointPath, out: Out, vector: VectorName = None) -> None:
    """Write the model of a checkpoint as one safetensors file.

    The file has the model's own names and types, all names of tied parameters included. PyTorch
    loads it without DistTrain:

    model.load_state_dict(safetensors.torch.load_file("model.safetensors"))

    All hashes of the checkpoint are checked before. The file's metadata hold a SHA-256 of the
    data behind its header ("disttrain.sha256").

    Example: disttrain export runs/digits/checkpoints/00000003 model.safetensors
    """
    typer.echo(write_model(checkpoint, out, vector))


def write_model(checkpoint: str, out: Path, vector: str | None = None) -> str:
    """Write `out`; a sentence about it. Raises CheckpointError."""
    if out.exists():
        raise AlreadyThere(f"{out} exists already; delete it or choose another name")
    with checkpoint_folder.resolved(checkpoint) as source:
        written = exporting.export(source.path, out, vector)
    return f"wrote {out}: {written.tensors} tensors, {written.bytes:,} bytes, of {source.said}"


def inspected(checkpoint: str, *, as_json: bool) -> str:
    """A verified checkpoint as tables, or as one JSON object. Raises CheckpointError."""
    with checkpoint_folder.resolved(checkpoint) as meant:
        found = inspection.inspect(stores.verify(meant.path), meant.said)
        state = checkpoint_folder.coordinator_state(meant.path)
    if as_json:
        return with_decisions(inspection.to_json(found), state) + "\n"
    parts = (_summary(found), _parts(found), _tensors(found), decision_rows(state))
    # Names come from a file, which may be a stranger's.
    shown = ([[*map(terminal_text.one_line, row)] for row in rows] for rows in parts if rows)
    return "\n\n".join(map(kubectl_text.table, shown)) + "\n"


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


def decision_rows(state: State | None) -> list[tuple[str, ...]]:
    """A table with its head; empty for other strategies."""
    found = _decisions(state)
    if not found:
        return []
    head = (*_DECISION[:-1], "decision")
    return [head, *(tuple(_cell(*each) for each in fields.items()) for fields in found)]


def with_decisions(described: str, state: State | None) -> str:
    batch = None if state is None else batch_status.batch(state)
    if batch is None:
        return described
    whole = {**json.loads(described), "sandblaster": {**batch, "decisions": _decisions(state)}}
    return json.dumps(status.finite(whole), indent=2)


def _decisions(state: State | None) -> list[dict[str, Any]]:
    if state is None or state.batch is None:
        return []
    decisions = state.batch.course.method.decisions
    return [{name: getattr(each, name) for name in _DECISION} for each in decisions]


def _cell(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.10g}" if name == "loss" else f"{value:.4g}"
    return str(value)
