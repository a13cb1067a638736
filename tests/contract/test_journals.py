"""What every journal promises, whatever keeps it: a file, or objects in a store."""

import pytest

from builders import object_stores
from disttrain.coordinator.journal import entries, journals
from disttrain.coordinator.journal.journals import DecisionJournal
from disttrain.coordinator.journal.state import Phase, State
from disttrain.job.location import Location

PHASES = (Phase.RUNNING, Phase.DRAINING, Phase.CHECKPOINTING, Phase.EXPORTING)


@pytest.fixture(name="at", params=object_stores.KINDS)
def _at(request: pytest.FixtureRequest) -> Location:
    return object_stores.location(request, request.param)


def change(phase: Phase) -> entries.Decided:
    return (entries.PhaseChanged(phase=phase, now=1.0),)


def begun(at: Location, state: State | None = None) -> DecisionJournal:
    kept = journals.open_journal(at)
    kept.begin(state or State())
    return kept


def replayed(at: Location) -> tuple[Phase, int]:
    found = journals.replay(at)
    assert found is not None
    return found.state.phase, found.decisions


def test_without_a_journal_there_is_nothing_to_replay(at: Location) -> None:
    assert journals.replay(at) is None


def test_what_was_synced_is_replayed_whatever_becomes_of_its_writer(at: Location) -> None:
    kept = begun(at)
    for number, phase in enumerate(PHASES, start=1):
        kept.append(change(phase))
        kept.sync()
        assert not kept.is_behind
        assert replayed(at) == (phase, number)


def test_several_decisions_are_synced_together(at: Location) -> None:
    kept = begun(at)
    for phase in PHASES:
        kept.append(change(phase))
    kept.append(())
    kept.sync()
    kept.sync()
    assert replayed(at) == (PHASES[-1], len(PHASES))


def test_a_snapshot_stands_for_all_before_it(at: Location) -> None:
    kept = begun(at)
    kept.append(change(Phase.RUNNING))
    kept.sync()
    kept.append(change(Phase.DRAINING))
    state = State()
    state.phase = Phase.DRAINING
    kept.begin(state)
    assert replayed(at) == (Phase.DRAINING, 0)
    kept.append(change(Phase.EXPORTING))
    kept.close()
    assert replayed(at) == (Phase.EXPORTING, 1)


def test_the_next_life_goes_on_with_a_journal_of_its_own(at: Location) -> None:
    kept = begun(at)
    kept.append(change(Phase.RUNNING))
    kept.sync()
    found = journals.replay(at)
    assert found is not None
    again = begun(at, found.state)
    again.append(change(Phase.DRAINING))
    again.close()
    assert replayed(at) == (Phase.DRAINING, 1)
