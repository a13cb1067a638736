"""What `disttrain inspect` does."""

from pathlib import Path

from disttrain.checkpoint import inspection, store
from disttrain.cli import batch_decisions, checkpoint_folder, checkpoint_table


def table(checkpoint: Path) -> str:
    """A verified checkpoint as tables. Raises CheckpointError."""
    found = _inspect(checkpoint)
    decisions = batch_decisions.rows(batch_decisions.read(found.path))
    return checkpoint_table.text(found, decisions)


def json(checkpoint: Path) -> str:
    """A verified checkpoint as one JSON object. Raises CheckpointError."""
    found = _inspect(checkpoint)
    known = batch_decisions.read(found.path)
    return batch_decisions.with_decisions(inspection.to_json(found), known) + "\n"


def _inspect(checkpoint: Path) -> inspection.Inspection:
    return inspection.inspect(store.verify(checkpoint_folder.resolve(checkpoint)))
