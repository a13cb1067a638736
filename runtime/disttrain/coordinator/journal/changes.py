"""What another manifest at a resume makes impossible. Pure."""

from disttrain.coordinator.journal import batch_changes
from disttrain.coordinator.journal.state import State
from disttrain.job.spec import Spec


def impossible(found: State, spec: Spec) -> str | None:
    """Why a checkpoint cannot be gone on with, and what to do; None if it can."""
    before = found.data.seed
    if found.data.samples > 0 and spec.seed != before:
        return (
            f"spec.seed was {before} and is {spec.seed}: portions are cut by it, so samples of "
            f"this epoch would be repeated, and others left out. Set {before}, or begin a new run"
        )
    now = spec.strategy.sandblaster
    if found.batch is None or now is None:
        return None
    return batch_changes.impossible(found.batch.rules, now)
