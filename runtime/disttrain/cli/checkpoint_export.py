"""What `disttrain export` does."""

from pathlib import Path

from disttrain.checkpoint import export
from disttrain.checkpoint.errors import AlreadyThere
from disttrain.cli import checkpoint_folder


def run(checkpoint: str, out: Path) -> str:
    """Write `out`; a sentence about it. Raises CheckpointError."""
    if out.exists():
        message = f"{out} exists already; delete it or choose another name"
        raise AlreadyThere(message)
    with checkpoint_folder.resolved(checkpoint) as source:
        written = export.export(source.path, out)
    return f"wrote {out}: {written.tensors} tensors, {written.bytes:,} bytes, of {source.said}"
