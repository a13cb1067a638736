"""What every journal promises, whatever keeps it: a file, or objects in a store."""

import pytest

from builders import object_stores
from disttrain.coordinator.errors import Superseded
from disttrain.coordinator.journal import entries, job_entries, journals
from disttrain.coordinator.journal.journals import DecisionJournal
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.phases import Phase
from disttrain.job.location import Location

PHASES = (Phase.RUNNING, Phase.DRAINING, Phase.CHECKPOINTING, Phase.EXPORTING)


@pytest.fixture(name="at", params=object_stores.KINDS)
def _at(request: pytest.FixtureRequest) -> Location:
    return object_stores.location(request, request.param)


def claimed(at: Location, identity: str) -> DecisionJournal:
    """As a coordinator begins: it claims, replays and goes on."""
    kept = journals.open_journal(at)
    kept.claim(identity)
    found = journals.replay(at)
    kept.begin(State() if found is None else found.state)
    return kept


def old_and_new(at: Location) -> tuple[DecisionJournal, DecisionJournal]:
    """One that runs, and one that has claimed its journal and begins no new one yet."""
    old, new = claimed(at, "old"), journals.open_journal(at)
    old.append(change(Phase.RUNNING))
    old.sync()
    new.claim("new")
    return old, new


def change(phase: Phase) -> entries.Decided:
    return (job_entries.PhaseChanged(phase=phase, now=1.0),)


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


def test_the_next_incarnation_goes_on_with_a_journal_of_its_own(at: Location) -> None:
    kept = begun(at)
    kept.append(change(Phase.RUNNING))
    kept.sync()
    found = journals.replay(at)
    assert found is not None
    again = begun(at, found.state)
    again.append(change(Phase.DRAINING))
    again.close()
    assert replayed(at) == (Phase.DRAINING, 1)


def test_an_older_coordinator_answers_nothing_that_the_newer_one_has_not_replayed(
    at: Location,
) -> None:
    old, new = old_and_new(at)
    old.append(change(Phase.DRAINING))
    with pytest.raises(Superseded):
        old.sync()
    found = journals.replay(at)
    assert found is not None
    new.begin(found.state)
    new.append(change(Phase.EXPORTING))
    new.sync()
    assert replayed(at) == (Phase.EXPORTING, 1)


def test_an_older_coordinator_answers_nothing_once_the_newer_one_has_begun_its_journal(
    at: Location,
) -> None:
    old, new = old_and_new(at)
    found = journals.replay(at)
    assert found is not None
    for _ in range(2):
        new.begin(found.state)
    old.append(change(Phase.DRAINING))
    with pytest.raises(Superseded):
        old.sync()
    assert replayed(at) == (Phase.RUNNING, 0)


def test_an_older_coordinator_neither_begins_anew_nor_deletes_the_newer_ones_journal(
    at: Location,
) -> None:
    old = claimed(at, "old")
    new = claimed(at, "new")
    new.append(change(Phase.RUNNING))
    new.sync()
    with pytest.raises(Superseded):
        old.require_owner()
    with pytest.raises(Superseded):
        old.begin(State())
    old.append(change(Phase.DRAINING))
    old.close()
    new.append(change(Phase.EXPORTING))
    new.sync()
    assert replayed(at) == (Phase.EXPORTING, 2)


def test_who_was_followed_by_another_place_does_not_take_over_again(at: Location) -> None:
    claimed(at, "first")
    claimed(at, "first")
    claimed(at, "second")
    with pytest.raises(Superseded, match="a newer coordinator"):
        journals.open_journal(at).claim("first")
    claimed(at, "second")
    claimed(at, "third")


def test_of_two_that_begin_at_once_one_goes_on(at: Location) -> None:
    claimed(at, "old")
    first, second = journals.open_journal(at), journals.open_journal(at)
    first.claim("first")
    second.claim("second")
    second.begin(State())
    with pytest.raises(Superseded):
        first.begin(State())
    second.append(change(Phase.RUNNING))
    second.sync()
    assert replayed(at) == (Phase.RUNNING, 1)
