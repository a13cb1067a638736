"""What is looked at before a run goes on from its newest checkpoint."""

from pathlib import Path

import typer

from disttrain.checkpoint import reading
from disttrain.cli import batch_decisions, checkpoint_folder
from disttrain.coordinator.errors import ManifestChanged
from disttrain.coordinator.journal import resume
from disttrain.job import manifest_file
from disttrain.job.spec import Spec
from disttrain.job.strategies.sandblaster import Sandblaster
from disttrain.job.strategy_kind import Precision
from disttrain.launch.run_folder import RunFolder
from disttrain.state.vector import DOUBLE

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
    if checkpoint is None:
        return
    now = spec.strategy.sandblaster
    _refuse(None if ledger is None else resume.impossible(ledger, spec))
    if now is None:
        is_of_method = ledger is not None and ledger.batch is not None
        _refuse(_NO_METHOD if is_of_method else _other_optimizer(checkpoint, spec))
        return
    if ledger is None:
        return
    if ledger.batch is None:
        _refuse(_impossible_in_warm_start(checkpoint, now))
        return
    for change in resume.between(ledger.batch.rules, now):
        typer.echo(str(change))


def _other_optimizer(checkpoint: Path, spec: Spec) -> str | None:
    """The shards' state is of one optimizer, and no other can go on with it."""
    was = reading.read(checkpoint).manifest.update_rule
    now = spec.strategy.rule.update_rule
    if was == now:
        return None
    return (
        f"spec.strategy.downpour.optimizer was {was} and is {now}, which cannot go on with the "
        f"checkpoint's state. Set {was}, or begin a new run"
    )


def _impossible_in_warm_start(checkpoint: Path, now: Sandblaster) -> str | None:
    manifest = reading.read(checkpoint).manifest
    vectors = {piece.vector for piece in manifest.pieces}
    precision = Precision.FLOAT64 if DOUBLE in vectors else Precision.FLOAT32
    return resume.impossible_in_warm_start(manifest.update_rule, precision, now)


def _refuse(why: str | None) -> None:
    if why is not None:
        raise ManifestChanged(why)
