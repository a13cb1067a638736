"""What is looked at before a run goes on from its newest checkpoint."""

from pathlib import Path

import typer

from disttrain.checkpoint import reading
from disttrain.cli import batch_decisions, checkpoint_folder
from disttrain.coordinator.errors import ManifestChanged
from disttrain.coordinator.journal import batch_changes, changes
from disttrain.job import manifest_file
from disttrain.job.sandblaster import Precision, Sandblaster
from disttrain.launch.run_folder import RunFolder
from disttrain.transport.header import Vector

_DOUBLE = Vector.PARAMETERS_FLOAT64
_NO_METHOD = (
    "spec.strategy was sandblaster and is downpour, which has nothing to go on with in the "
    "checkpoint of a batch method. Set sandblaster, or begin a new run"
)


def look(output: Path) -> None:
    """Refuse a manifest by which a run cannot go on, and say what one changes of a batch method.

    Nothing happens when there is no run or no checkpoint. Raises Corrupt when that is damaged,
    ManifestChanged when the run cannot be gone on with by this manifest.
    """
    checkpoint = checkpoint_folder.require_whole(output)
    ledger = None if checkpoint is None else batch_decisions.read(checkpoint)
    spec = manifest_file.load_job(RunFolder(output).job).spec
    if checkpoint is None or ledger is None:
        return
    _refuse(changes.impossible(ledger, spec))
    now = spec.strategy.sandblaster
    if now is None:
        _refuse(None if ledger.batch is None else _NO_METHOD)
        return
    if ledger.batch is None:
        _refuse(_impossible_in_warm_start(checkpoint, now))
        return
    for change in batch_changes.between(ledger.batch.rules, now):
        typer.echo(str(change))


def _impossible_in_warm_start(checkpoint: Path, now: Sandblaster) -> str | None:
    manifest = reading.read(checkpoint).manifest
    vectors = {piece.vector for piece in manifest.pieces}
    precision = Precision.FLOAT64 if _DOUBLE in vectors else Precision.FLOAT32
    return batch_changes.impossible_in_warm_start(manifest.update_rule, precision, now)


def _refuse(why: str | None) -> None:
    if why is not None:
        raise ManifestChanged(why)
