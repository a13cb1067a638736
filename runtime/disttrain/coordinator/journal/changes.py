"""What another manifest at a resume makes impossible, whatever the strategy is. Pure."""

from disttrain.coordinator.journal.state import State
from disttrain.job.spec import Spec


def impossible(found: State, spec: Spec) -> str | None:
    """Why a checkpoint cannot be gone on with, and what to do; None if it can."""
    before = found.data.seed
    if found.data.samples == 0 or spec.seed == before:
        return None
    return (
        f"spec.seed was {before} and is {spec.seed}: portions are cut by it, so samples of this "
        f"epoch would be repeated, and others left out. Set {before}, or begin a new run"
    )
