"""What is looked at before a run goes on from its newest checkpoint."""

from pathlib import Path

import typer

from disttrain.cli import batch_decisions, checkpoint_folder
from disttrain.coordinator.errors import ManifestChanged
from disttrain.coordinator.journal import batch_changes
from disttrain.job import manifest_file
from disttrain.launch.run_folder import RunFolder


def look(output: Path) -> None:
    """Say what the manifest changes of a batch method that is under way.

    Nothing happens when there is no run or no checkpoint. Raises Corrupt when that is damaged,
    ManifestChanged when the run cannot be gone on with by this manifest.
    """
    checkpoint = checkpoint_folder.require_whole(output)
    ledger = None if checkpoint is None else batch_decisions.read(checkpoint)
    if ledger is None or ledger.batch is None:
        return
    now = manifest_file.load_job(RunFolder(output).job).spec.strategy.sandblaster
    if now is None:
        return
    why = batch_changes.impossible(ledger.batch.rules, now)
    if why is not None:
        raise ManifestChanged(why)
    for change in batch_changes.between(ledger.batch.rules, now):
        typer.echo(str(change))
