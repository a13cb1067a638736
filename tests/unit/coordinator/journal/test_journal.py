"""The journal on disk: torn ends are dropped, damage is refused, a full disk is survived."""

import errno
import math
import os
import shutil
import stat
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from disttrain.checkpoint import names
from disttrain.coordinator.errors import JournalDamaged, Superseded
from disttrain.coordinator.journal import entries, job_entries, journal, state
from disttrain.coordinator.journal.journal import Journal
from disttrain.coordinator.journal.state import Evaluation, State
from disttrain.coordinator.phases import Phase


def _change(phase: Phase, now: float) -> entries.Decided:
    return (job_entries.PhaseChanged(phase=phase, now=now),)


def _written(folder: Path) -> Path:
    written = Journal(folder)
    written.begin(State())
    written.append(_change(Phase.RUNNING, 1.0))
    written.append(_change(Phase.DRAINING, 2.0))
    written.close()
    return next(folder.glob("*.jsonl"))


def test_what_was_written_is_replayed(tmp_path: Path) -> None:
    _written(tmp_path)
    replayed = journal.replay(tmp_path)
    assert replayed is not None
    assert replayed.decisions == 2
    assert (replayed.state.phase, replayed.state.began) == (Phase.DRAINING, 1.0)


def test_without_a_journal_there_is_nothing_to_replay(tmp_path: Path) -> None:
    assert journal.replay(tmp_path / "missing") is None


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cut=st.integers(1, 400))
def test_a_torn_end_loses_whole_decisions_only(tmp_path: Path, cut: int) -> None:
    for old in tmp_path.glob("*"):
        old.unlink()
    file = _written(tmp_path)
    content = file.read_bytes()
    head = content.index(b"\n") + 1
    file.write_bytes(content[: max(head, len(content) - cut)])
    replayed = journal.replay(tmp_path)
    assert replayed is not None
    phases = [Phase.WAITING, Phase.RUNNING, Phase.DRAINING]
    assert replayed.state.phase is phases[replayed.decisions]


def test_damage_before_the_end_is_refused(tmp_path: Path) -> None:
    file = _written(tmp_path)
    content = bytearray(file.read_bytes())
    content[content.index(b"\n") + 20] ^= 1
    file.write_bytes(content)
    with pytest.raises(JournalDamaged, match="before its end"):
        journal.replay(tmp_path)


def test_a_new_file_begins_with_the_state_and_replaces_the_old(tmp_path: Path) -> None:
    written = Journal(tmp_path)
    written.begin(State())
    found = State(phase=Phase.EXPORTING)
    written.begin(found)
    written.append(_change(Phase.EVALUATING, 5.0))
    written.close()
    assert len(list(tmp_path.glob("*"))) == 1
    replayed = journal.replay(tmp_path)
    assert replayed is not None
    assert (replayed.state.phase, replayed.decisions) == (Phase.EVALUATING, 1)


def test_a_full_disk_delays_entries_and_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Journal(tmp_path)
    written.begin(State())
    real = os.pwrite

    def full(descriptor: int, content: bytes, offset: int) -> int:
        if len(content) > 20:
            return real(descriptor, content[:20], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    written.append(_change(Phase.RUNNING, 1.0))
    assert written.is_behind
    half = journal.replay(tmp_path)
    assert half is not None
    assert half.decisions == 0
    monkeypatch.setattr(os, "pwrite", real)
    written.append(_change(Phase.DRAINING, 2.0))
    assert not written.is_behind
    written.close()
    replayed = journal.replay(tmp_path)
    assert replayed is not None
    assert replayed.decisions == 2


def test_a_journal_that_was_not_closed_is_replayed_with_its_reserve(tmp_path: Path) -> None:
    written = Journal(tmp_path)
    written.begin(State())
    written.append(_change(Phase.RUNNING, 1.0))
    file = next(tmp_path.glob("*.jsonl"))
    assert file.stat().st_blocks * 512 >= 1 << 20
    assert file.read_bytes().endswith(b"\0")
    replayed = journal.replay(tmp_path)
    assert replayed is not None
    assert replayed.state.phase is Phase.RUNNING


def test_the_state_survives_the_way_to_disk() -> None:
    found = State(phase=Phase.RUNNING)
    found.data.samples, found.data.portion_size = 32, 8
    found.data.open_epoch()
    assert state.from_json(state.to_json(found)) == found


@pytest.mark.parametrize("measure", [math.nan, math.inf, -math.inf])
def test_a_measure_that_is_no_number_survives_the_way_to_disk(measure: float) -> None:
    found = State(phase=Phase.RUNNING)
    found.evaluations.append(
        Evaluation(epoch=1, samples=8, seconds=1.0, loss=measure, measures={"error": measure})
    )
    restored = state.from_json(state.to_json(found))
    assert repr(restored) == repr(found)


class FailingDisk:
    """A disk one of whose calls fails as often as it is told to, or only those for folders."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, call: str, *, for_folders: bool = False
    ) -> None:
        self.failures = 0
        self._for_folders = for_folders
        self._real = getattr(os, call)
        monkeypatch.setattr(os, call, self._call)

    def _call(self, *arguments: object) -> object:
        if self.failures and (not self._for_folders or _is_folder(arguments[0])):
            self.failures -= 1
            raise OSError(errno.EIO, "Input/output error")
        return self._real(*arguments)


def _is_folder(descriptor: object) -> bool:
    assert isinstance(descriptor, int)
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


def _phase_replayed(folder: Path) -> Phase:
    replayed = journal.replay(folder)
    assert replayed is not None
    return replayed.state.phase


def _assert_it_goes_on(written: Journal, folder: Path, phase: Phase) -> None:
    """What is decided next comes back from the disk."""
    written.append(_change(phase, 3.0))
    written.close()
    assert _phase_replayed(folder) is phase


def test_after_a_failed_sync_only_a_new_file_with_the_whole_state_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Journal(tmp_path)
    written.begin(State())
    disk = FailingDisk(monkeypatch, "fdatasync")
    found = State()
    for phase in (Phase.RUNNING, Phase.DRAINING):
        disk.failures = 1
        decided = _change(phase, 1.0)
        entries.fold(found, decided)
        written.append(decided)
        written.sync()
    assert written.is_behind
    written.sync()
    assert written.is_behind, "a later success on the same file proves nothing"

    written.catch_up(found)

    assert not written.is_behind
    assert [file.name for file in tmp_path.iterdir()] == ["00000002.jsonl"]
    _assert_it_goes_on(written, tmp_path, Phase.EXPORTING)


def test_a_new_file_that_cannot_be_written_leaves_the_old_one_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Journal(tmp_path)
    written.begin(State())
    disk = FailingDisk(monkeypatch, "fsync")
    disk.failures = 1
    with pytest.raises(OSError, match="Input/output"):
        written.begin(State(phase=Phase.RUNNING))
    assert not written.is_behind
    assert [file.name for file in tmp_path.iterdir()] == ["00000001.jsonl"]
    _assert_it_goes_on(written, tmp_path, Phase.DRAINING)


@pytest.mark.parametrize(("call", "for_folders"), [("rename", False), ("fsync", True)])
def test_between_an_old_and_a_new_file_nothing_counts_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, *, for_folders: bool
) -> None:
    written = Journal(tmp_path)
    written.begin(State())
    disk = FailingDisk(monkeypatch, call, for_folders=for_folders)
    for _ in range(2):
        disk.failures = 1
        with pytest.raises(OSError, match="Input/output"):
            written.begin(State(phase=Phase.RUNNING))
        assert written.is_behind
        assert (tmp_path / "00000001.jsonl").exists(), "a crash of the machine may bring it back"
    written.append(_change(Phase.DRAINING, 2.0))

    written.catch_up(State(phase=Phase.DRAINING))

    assert not written.is_behind
    assert [file.name for file in tmp_path.iterdir()] == ["00000002.jsonl"]
    _assert_it_goes_on(written, tmp_path, Phase.EXPORTING)


def test_an_old_file_that_stays_harms_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Journal(tmp_path)
    written.begin(State())
    disk = FailingDisk(monkeypatch, "unlink")
    disk.failures = 1
    written.begin(State(phase=Phase.RUNNING))
    assert len(list(tmp_path.iterdir())) == 2
    _assert_it_goes_on(written, tmp_path, Phase.DRAINING)


@pytest.mark.parametrize("is_claimed", [False, True])
def test_what_is_synced_counts_as_written_once_it_is_known_whose_the_journal_is(
    tmp_path: Path, *, is_claimed: bool
) -> None:
    written, claims = Journal(tmp_path), tmp_path / names.OWNERS
    written.claim("first")
    written.begin(State())
    written.append(_change(Phase.RUNNING, 1.0))
    if is_claimed:
        Journal(tmp_path).claim("second")
    claims.rename(tmp_path / "away")
    for _ in range(2):
        written.sync()
        assert written.is_behind

    (tmp_path / "away").rename(claims)
    if is_claimed:
        with pytest.raises(Superseded):
            written.sync()
        return
    written.sync()
    assert not written.is_behind


@pytest.mark.parametrize("call", ["lstat", "stat"])
def test_a_folder_that_hangs_for_a_moment_ends_no_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    written = Journal(tmp_path)
    written.claim("mine")
    written.begin(State())
    written.append(_change(Phase.RUNNING, 1.0))
    with monkeypatch.context() as patch:
        patch.setattr(Path, call, _stale)
        if call == "stat":
            (tmp_path / names.OWNERS).rename(tmp_path / "away")
        written.sync()
        assert written.is_behind
        assert not written.require_owner()

    if call == "stat":
        (tmp_path / "away").rename(tmp_path / names.OWNERS)
    written.sync()
    assert not written.is_behind


def _stale(*_: object, **_options: object) -> NoReturn:
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def test_a_page_that_did_not_reach_the_disk_costs_nothing_that_was_synced(tmp_path: Path) -> None:
    """The pages of what was written since reach it in any order; others are zeros."""
    written = Journal(tmp_path)
    written.begin(State())
    written.append(_change(Phase.RUNNING, 1.0))
    written.sync()
    (file,) = tmp_path.glob("*.jsonl")
    synced = len(file.read_bytes().rstrip(b"\0"))
    for number in range(200):
        written.append(_change(Phase.DRAINING, float(number)))
    content = bytearray(file.read_bytes())
    page = -(-synced // 4096) * 4096
    content[page : page + 4096] = bytes(4096)
    assert content[page + 4096 :].strip(b"\0")
    file.write_bytes(content)

    replayed = journal.replay(tmp_path)

    assert replayed is not None
    assert 1 <= replayed.decisions < 200
    assert replayed.state.began == 1.0


def test_closing_on_a_failing_disk_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Journal(tmp_path)
    written.begin(State())
    written.append(_change(Phase.RUNNING, 1.0))
    FailingDisk(monkeypatch, "ftruncate").failures = 1
    FailingDisk(monkeypatch, "fdatasync").failures = 1
    written.close()
    assert _phase_replayed(tmp_path) is Phase.RUNNING


def test_a_journal_whose_folder_was_deleted_ends_its_coordinator(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    written = Journal(folder)
    written.claim("mine")
    written.begin(State())
    written.append(_change(Phase.RUNNING, 1.0))
    shutil.rmtree(folder)

    with pytest.raises(JournalDamaged, match=f"{folder} was deleted or renamed"):
        written.sync()
    written.close()
