"""The journal in an object store: requests that fail, and those that are carried out too late."""

from collections.abc import Mapping

import pytest

from builders.flaky_objects import Fault, FlakyObjects
from disttrain.checkpoint.errors import NotWritten, StoreAway
from disttrain.coordinator.errors import JournalDamaged, Superseded
from disttrain.coordinator.journal import entries, job_entries, object_journal
from disttrain.coordinator.journal.object_journal import ObjectJournal
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.phases import Phase


def change(phase: Phase) -> entries.Decided:
    return (job_entries.PhaseChanged(phase=phase, now=1.0),)


def begun(*faults: Fault | None) -> tuple[ObjectJournal, FlakyObjects]:
    """A journal whose snapshot is written; `faults` meet what follows."""
    objects = FlakyObjects()
    kept = ObjectJournal(objects)
    kept.begin(State())
    objects.faults = list(faults)
    return kept, objects


def replayed(objects: FlakyObjects) -> tuple[Phase, int]:
    found = object_journal.replay(objects)
    assert found is not None
    return found.state.phase, found.decisions


@pytest.mark.parametrize("fault", Fault)
def test_a_decision_whose_writing_failed_is_written_again_and_folded_once(fault: Fault) -> None:
    kept, objects = begun(fault)
    kept.append(change(Phase.RUNNING))
    kept.sync()
    assert kept.is_behind
    kept.append(change(Phase.DRAINING))
    kept.catch_up(State())
    assert not kept.is_behind
    objects.arrive()
    assert replayed(objects) == (Phase.DRAINING, 2)


class Mute(FlakyObjects):
    """A store that can be told to list nothing."""

    is_mute = False

    def sizes(self, folder: str) -> dict[str, int]:
        if self.is_mute:
            raise StoreAway(self.uri)
        return super().sizes(folder)


def test_after_a_failure_nothing_counts_as_written_until_the_claims_can_be_listed() -> None:
    objects = Mute()
    older, newer = ObjectJournal(objects, lambda: 10.0), ObjectJournal(objects, lambda: 11.0)
    older.claim("first")
    older.begin(State())
    objects.faults = [Fault.REFUSED]
    older.append(change(Phase.RUNNING))
    older.sync()
    newer.claim("second")
    assert replayed(objects)[0] is not Phase.RUNNING

    objects.is_mute = True
    older.catch_up(State())
    assert older.is_behind, "the name before it is sealed, so this one is not replayed"

    objects.is_mute = False
    with pytest.raises(Superseded):
        older.catch_up(State())


def test_an_owner_goes_on_once_the_claims_can_be_listed_again() -> None:
    objects = Mute()
    kept = ObjectJournal(objects, lambda: 10.0)
    kept.claim("first")
    kept.begin(State())
    objects.faults = [Fault.REFUSED]
    kept.append(change(Phase.RUNNING))
    kept.sync()
    objects.is_mute = True
    kept.catch_up(State())
    objects.is_mute = False
    kept.catch_up(State())

    assert not kept.is_behind
    assert replayed(objects) == (Phase.RUNNING, 1)


def test_what_arrives_late_changes_nothing_that_followed() -> None:
    kept, objects = begun(Fault.LATE, Fault.LATE)
    kept.append(change(Phase.RUNNING))
    kept.sync()
    for _ in range(2):
        kept.catch_up(State())
    kept.append(change(Phase.DRAINING))
    kept.sync()
    before = replayed(objects)
    objects.arrive()
    assert replayed(objects) == before == (Phase.DRAINING, 2)


@pytest.mark.parametrize("fault", Fault)
def test_after_a_failed_snapshot_only_a_newer_one_is_trusted(fault: Fault) -> None:
    kept, objects = begun(fault)
    state = State()
    state.phase = Phase.RUNNING
    with pytest.raises(NotWritten):
        kept.begin(state)
    assert kept.is_behind
    kept.append(change(Phase.DRAINING))
    kept.sync()
    assert kept.is_behind
    state.phase = Phase.DRAINING
    kept.catch_up(state)
    assert not kept.is_behind
    objects.arrive()
    assert replayed(objects) == (Phase.DRAINING, 0)
    kept.append(change(Phase.EXPORTING))
    kept.sync()
    assert replayed(objects) == (Phase.EXPORTING, 1)


def test_a_snapshot_of_an_earlier_incarnation_that_arrives_late_changes_nothing() -> None:
    objects = FlakyObjects(faults=[Fault.LATE])
    with pytest.raises(NotWritten):
        ObjectJournal(objects, lambda: 10.0).begin(State())
    state = State()
    state.phase = Phase.RUNNING
    ObjectJournal(objects, lambda: 11.0).begin(state)
    objects.arrive()
    assert replayed(objects) == (Phase.RUNNING, 0)


@pytest.mark.parametrize("segment", [0, 1, 2])
def test_a_changed_byte_is_damage_and_no_shorter_journal(segment: int) -> None:
    kept, objects = begun()
    for phase in (Phase.RUNNING, Phase.DRAINING):
        kept.append(change(phase))
        kept.sync()
    (name,) = [name for name in objects.there if name.endswith(f"-{segment:06d}")]
    content = bytearray(objects.there[name])
    content[12] ^= 1
    objects.there[name] = bytes(content)
    with pytest.raises(JournalDamaged, match=rf"-{segment:06d} is damaged after line 0"):
        object_journal.replay(objects)


def test_half_of_a_line_at_the_end_was_not_synced() -> None:
    kept, objects = begun()
    for phase in (Phase.RUNNING, Phase.DRAINING):
        kept.append(change(phase))
        kept.sync()
    (last,) = [name for name in objects.there if name.endswith("-000002")]
    objects.there[last] = objects.there[last][:-5]
    assert replayed(objects) == (Phase.RUNNING, 1)


def test_a_journal_that_is_deleted_while_it_is_read_is_read_again_later() -> None:
    class Vanishing(FlakyObjects):
        def read_all(self, sizes: Mapping[str, int]) -> dict[str, bytes]:
            self.there.clear()
            return super().read_all(sizes)

    objects = Vanishing()
    ObjectJournal(objects).begin(State())
    with pytest.raises(StoreAway, match="changed while it was read"):
        object_journal.replay(objects)


def test_a_missing_segment_is_damage_and_no_shorter_journal() -> None:
    kept, objects = begun()
    for phase in (Phase.RUNNING, Phase.DRAINING, Phase.EXPORTING):
        kept.append(change(phase))
        kept.sync()
    (second,) = [name for name in objects.there if name.endswith("-000002")]
    del objects.there[second]
    with pytest.raises(JournalDamaged, match=r"decision 2 .* is missing"):
        object_journal.replay(objects)


def test_many_segments_ask_for_a_snapshot() -> None:
    kept, objects = begun()
    syncs = 0
    while not kept.is_long:
        kept.append(change(Phase.RUNNING))
        kept.sync()
        syncs += 1
        assert syncs < 1000
    kept.begin(State())
    assert not kept.is_long
    assert len(objects.there) == 1


def test_what_failed_is_tried_again_by_catching_up_alone() -> None:
    kept, objects = begun(Fault.REFUSED)
    kept.append(change(Phase.RUNNING))
    for _ in range(3):
        kept.sync()
    assert kept.is_behind
    assert len(objects.there) == 1
    kept.catch_up(State())
    assert not kept.is_behind
    assert len(objects.there) == 2


def test_a_store_that_is_away_is_waited_for_and_nothing_is_lost() -> None:
    kept, objects = begun(*[Fault.REFUSED] * 5)
    kept.append(change(Phase.RUNNING))
    for _ in range(5):
        kept.catch_up(State())
        assert kept.is_behind
    kept.catch_up(State())
    assert not kept.is_behind
    assert replayed(objects) == (Phase.RUNNING, 1)
