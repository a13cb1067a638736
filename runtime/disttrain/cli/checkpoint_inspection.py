"""What `disttrain inspect` does."""

from disttrain.checkpoint import inspection, store
from disttrain.checkpoint.inspection import Inspection
from disttrain.cli import batch_decisions, checkpoint_folder, checkpoint_table
from disttrain.coordinator.journal.state import State


def table(checkpoint: str) -> str:
    """A verified checkpoint as tables. Raises CheckpointError."""
    found, ledger = _inspect(checkpoint)
    return checkpoint_table.text(found, batch_decisions.rows(ledger))


def json(checkpoint: str) -> str:
    """A verified checkpoint as one JSON object. Raises CheckpointError."""
    found, ledger = _inspect(checkpoint)
    return batch_decisions.with_decisions(inspection.to_json(found), ledger) + "\n"


def _inspect(checkpoint: str) -> tuple[Inspection, State | None]:
    with checkpoint_folder.resolved(checkpoint) as meant:
        found = inspection.inspect(store.verify(meant.path), meant.said)
        return found, batch_decisions.read(meant.path)
