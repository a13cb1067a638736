"""What `disttrain inspect` does."""

from pathlib import Path

from disttrain.checkpoint import inspection, store
from disttrain.cli import checkpoint_folder, checkpoint_table


def table(checkpoint: Path) -> str:
    """A verified checkpoint as tables. Raises CheckpointError."""
    return checkpoint_table.text(_inspect(checkpoint))


def json(checkpoint: Path) -> str:
    """A verified checkpoint as one JSON object. Raises CheckpointError."""
    return inspection.to_json(_inspect(checkpoint)) + "\n"


def _inspect(checkpoint: Path) -> inspection.Inspection:
    return inspection.inspect(store.verify(checkpoint_folder.resolve(checkpoint)))
