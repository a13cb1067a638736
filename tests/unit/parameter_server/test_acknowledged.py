import errno
import os
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from disttrain.parameter_server.acknowledged import AcknowledgedFile, Count
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.errors import NoRoomForCounts

PLACES = 128
"""Of a new file."""


def test_the_counts_survive_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "acknowledged.bin"
    child = os.fork()
    if child == 0:
        file = AcknowledgedFile(path)
        for sender in range(300):
            for pushes in range(1, 4):
                count = Count(pushes, 10 * pushes, sender, 7)
                file.store(SenderIncarnation(sender, 1 + sender % 2), count)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    file = AcknowledgedFile(path)
    assert file.counts() == {
        SenderIncarnation(s, 1 + s % 2): Count(3, 30, s, 7) for s in range(300)
    }
    file.close()


def test_a_later_incarnation_goes_on_in_the_same_file(tmp_path: Path) -> None:
    for pushes in (1, 2):
        file = AcknowledgedFile(tmp_path / "acknowledged.bin")
        file.store(SenderIncarnation(0, pushes), Count(pushes, pushes))
        file.close()
    again = AcknowledgedFile(tmp_path / "acknowledged.bin")
    assert again.counts() == {
        SenderIncarnation(0, 1): Count(1, 1),
        SenderIncarnation(0, 2): Count(2, 2),
    }
    assert again.count(SenderIncarnation(9, 9)) == Count()
    again.close()


def test_a_count_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """Until the byte that makes it the present one is written, the count before it holds."""
    path, incarnation = tmp_path / "acknowledged.bin", SenderIncarnation(3, 1)
    contents = []
    for pushes in (1, 2, 3):
        file = AcknowledgedFile(path)
        file.store(incarnation, Count(pushes, pushes, pushes, pushes))
        file.close()
        contents.append(path.read_bytes())
    for before, (old, new) in enumerate(pairwise(contents), start=1):
        commit = next(place for place in range(len(old)) if old[place] != new[place])
        path.write_bytes(new[:commit] + old[commit : commit + 1] + new[commit + 1 :])
        file = AcknowledgedFile(path)
        assert file.count(incarnation) == Count(before, before, before, before)
        file.close()


def _full(descriptor: int, offset: int, size: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{descriptor} {offset} {size}")


def test_a_full_disk_is_named_before_anything_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", _full)
    with pytest.raises(NoRoomForCounts, match=r"acknowledged.bin: No space left on device; make"):
        AcknowledgedFile(tmp_path / "acknowledged.bin")


def test_a_disk_that_is_full_later_leaves_out_new_senders_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = AcknowledgedFile(tmp_path / "acknowledged.bin")
    for sender in range(PLACES):
        file.store(SenderIncarnation(sender, 1), Count(1, 1))
    with monkeypatch.context() as disk:
        disk.setattr(os, "posix_fallocate", _full)
        for pushes in (1, 2):
            file.store(SenderIncarnation(PLACES, 1), Count(pushes, pushes))
        file.store(SenderIncarnation(0, 1), Count(2, 2))
    assert file.uncounted == {SenderIncarnation(PLACES, 1)}
    assert len(caplog.records) == 1
    assert file.count(SenderIncarnation(0, 1)) == Count(2, 2)
    file.store(SenderIncarnation(PLACES, 1), Count(3, 3))
    assert file.count(SenderIncarnation(PLACES, 1)) == Count(3, 3)
    assert not file.uncounted
    file.close()


def test_incarnations_that_are_over_are_dropped_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "acknowledged.bin"
    file = AcknowledgedFile(path)
    for sender in range(300):
        file.store(SenderIncarnation(sender, 1), Count(sender, sender))
    assert file.forget([SenderIncarnation(sender, 1) for sender in range(298)])
    file.store(SenderIncarnation(299, 1), Count(7, 7))
    file.store(SenderIncarnation(5, 2), Count(1, 1))
    expected = {
        SenderIncarnation(298, 1): Count(298, 298),
        SenderIncarnation(299, 1): Count(7, 7),
        SenderIncarnation(5, 2): Count(1, 1),
    }
    assert file.counts() == expected
    file.close()
    again = AcknowledgedFile(path)
    assert again.counts() == expected
    again.close()
    assert path.stat().st_size < 129 * 80
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_keeps_incarnations_that_could_be_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = AcknowledgedFile(tmp_path / "acknowledged.bin")
    file.store(SenderIncarnation(0, 1), Count(3, 3))

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert not file.forget([SenderIncarnation(0, 1)])
    assert file.count(SenderIncarnation(0, 1)) == Count(3, 3)
    file.close()


def _fill(path: Path) -> bytes:
    file = AcknowledgedFile(path)
    for sender in range(3):
        file.store(SenderIncarnation(sender, 1), Count(5, 5))
    file.close()
    return path.read_bytes()


def _overwritten(whole: bytes) -> bytes:
    return b"\xff" * 77 + whole[77:]


def _with_another_marker(whole: bytes) -> bytes:
    return b"\x07" + whole[1:]


def _with_a_hole(whole: bytes) -> bytes:
    return whole[:80] + bytes(80) + whole[160:]


def _with_an_incarnation_twice(whole: bytes) -> bytes:
    return whole[:80] + whole[:80] + whole[160:]


def _with_a_number_that_cannot_be_told(whole: bytes) -> bytes:
    return whole[:16] + b"\xff" * 32 + whole[48:]


@pytest.mark.parametrize(
    "damage",
    [
        _overwritten,
        _with_another_marker,
        _with_a_hole,
        _with_an_incarnation_twice,
        _with_a_number_that_cannot_be_told,
    ],
)
def test_a_damaged_file_is_put_aside_and_known_to_be_in_later_incarnations(
    tmp_path: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "acknowledged-0.bin"
    damaged = damage(_fill(path))
    path.write_bytes(damaged)

    first = AcknowledgedFile(path)
    assert (first.counts(), first.is_whole) == ({}, False)
    first.store(SenderIncarnation(0, 2), Count(1, 1))
    first.close()

    assert "damaged" in caplog.text
    assert (tmp_path / "acknowledged-0.damaged").read_bytes() == damaged
    second = AcknowledgedFile(path)
    assert (second.counts(), second.is_whole) == ({SenderIncarnation(0, 2): Count(1, 1)}, False)
    second.close()


def test_a_file_that_is_whole_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "acknowledged-0.bin"
    _fill(path)
    file = AcknowledgedFile(path)
    assert (len(file.counts()), file.is_whole) == (3, True)
    file.close()
