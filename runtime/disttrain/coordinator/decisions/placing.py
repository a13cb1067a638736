"""Who holds what: the only place that decides it. No I/O."""

from disttrain.coordinator.decisions.turn import Turn
from disttrain.coordinator.journal import job_entries
from disttrain.state.placement import Placement, place


def decide(turn: Turn) -> Placement | None:
    """The present table, made if need be; None before the model is known.

    The first one of a run is made here, and the first with another number of holders or with other
    vectors to keep than the run that this one resumes had.
    """
    state, settings = turn.state, turn.settings
    present = state.placement
    if state.layout is None or state.phase.ended:
        return present
    if present is None or not _fits(present, settings.holders, settings.kept):
        epoch = 0 if present is None else present.epoch + 1
        made = place(state.layout, settings.holders, settings.kept, epoch)
        turn.record(job_entries.Placed(placement=made))
    return state.placement


def _fits(present: Placement, holders: int, kept: tuple[str, ...]) -> bool:
    beside = tuple(vector.name for vector in present.vectors if not vector.is_of_a_model)
    return len(present.holders) == holders and beside == kept
