"""Files that a shard writes beside its values, on a disk that is really full."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builders import small_disk
from disttrain.parameter_server import ledger
from disttrain.parameter_server.acknowledged import AcknowledgedFile, Count
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.errors import NoRoomForCounts
from disttrain.parameter_server.ledger import Kind, Ledger, Record
from disttrain.telemetry import record_file

pytestmark = pytest.mark.landing


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk.mounted(tmp_path / "disk") as disk:
        yield disk


def in_a_child(act: Callable[[], None]) -> int:
    """How a process ends that does this: minus the signal that killed it, or its exit code."""
    child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_shard_without_room_for_its_counts_says_so_and_is_not_killed(disk: Path) -> None:
    small_disk.fill(disk / "ballast")

    def begin() -> None:
        with pytest.raises(NoRoomForCounts, match="No space left"):
            AcknowledgedFile(disk / "acknowledged-0.bin")

    assert in_a_child(begin) == 0


def test_counting_goes_on_while_the_disk_is_full(disk: Path) -> None:
    path = disk / "acknowledged-0.bin"

    def count() -> None:
        file = AcknowledgedFile(path)
        file.store(SenderIncarnation(0, 1), Count(1, 1))
        small_disk.fill(disk / "ballast")
        for sender in range(200):
            file.store(SenderIncarnation(sender, 1), Count(2, 2))
        assert len(file.uncounted) > 0

    assert in_a_child(count) == 0
    counts = AcknowledgedFile(path).counts()
    assert len(counts) >= 128
    assert set(counts.values()) == {Count(2, 2)}


def test_a_ledger_says_how_much_it_lacks_even_if_kill_9_comes_while_the_disk_is_full(
    disk: Path,
) -> None:
    path = disk / "shard-0.i1.bin"
    log = Ledger(path)
    log.append(Record(kind=Kind.PUSHED))
    small_disk.fill(disk / "ballast")
    # There is room to the end of its last page.
    pushed = 4096 // ledger.RECORD.itemsize + 3
    for _ in range(pushed):
        log.append(Record(kind=Kind.PUSHED))
    # Nothing is closed, nothing is flushed: this is what the next process would find.
    head, *records = ledger.read(path)
    assert int(head["samples"]) > 0
    assert len(records) + int(head["samples"]) == 1 + pushed
    assert not record_file.ends_in_half(path, ledger.RECORD)
    log.close()
