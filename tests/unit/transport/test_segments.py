"""Segments: what a peer may describe, and what is refused before it is mapped."""

import fcntl
import json
import mmap
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from disttrain.transport import segments
from disttrain.transport.config import Limits
from disttrain.transport.errors import SegmentRefused
from disttrain.transport.segments import Access, Description, SegmentMemory
from disttrain.transport.shared_memory import Attachments

JOB = 0x77


@pytest.fixture
def memory() -> Iterator[SegmentMemory]:
    memory = SegmentMemory(JOB, "replica-0-i1")
    yield memory
    memory.close()


def described(memory: SegmentMemory, access: Access, nbytes: int = 4096) -> Description:
    return segments.parse(segments.describe(memory.allocate("gradient", nbytes), access))


def test_a_written_segment_is_seen_by_both_sides(memory: SegmentMemory) -> None:
    buffer = memory.allocate("incoming", 100)
    view = segments.open_segment(segments.parse(segments.describe(buffer, Access.WRITE)), JOB)
    view[3] = 7
    assert buffer.view[3] == 7
    assert buffer.view.nbytes == 100


def test_a_segment_to_read_cannot_be_written(memory: SegmentMemory) -> None:
    assert segments.open_segment(described(memory, Access.READ), JOB).readonly


def test_names_and_numbers_are_never_used_again(memory: SegmentMemory) -> None:
    first = memory.allocate("gradient", 1)
    first.close()
    second = memory.allocate("gradient", 1)
    other = SegmentMemory(JOB, "replica-0-i1").allocate("gradient", 1)
    names = {first.name, second.name, other.name}
    assert len(names) == len({first.segment, second.segment, other.segment}) == 3
    assert all(name.startswith(f"disttrain-{JOB:016x}-replica-0-i1-gradient-") for name in names)
    other.close()


def test_a_segment_can_not_be_resized(memory: SegmentMemory) -> None:
    buffer = memory.allocate("gradient", 4096)
    for size in (0, 8192):
        with pytest.raises(PermissionError):
            os.ftruncate(buffer.descriptor, size)


def test_a_false_description_is_refused(memory: SegmentMemory) -> None:
    true = described(memory, Access.READ)
    for false, text in (
        (replace(true, nbytes=true.nbytes + 1), "bytes instead of"),
        (replace(true, name=true.name + "x"), "instead of a segment of this job"),
        (replace(true, descriptor=0), "instead of a segment of this job"),
        (replace(true, descriptor=10_000), "shows no segment"),
        (replace(true, process=1 << 40), "shows no segment"),
    ):
        with pytest.raises(SegmentRefused, match=text):
            segments.open_segment(false, JOB)
    with pytest.raises(SegmentRefused, match="instead of a segment of this job"):
        segments.open_segment(true, JOB + 1)


def test_what_was_opened_is_looked_at_again(
    memory: SegmentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = described(memory, Access.READ)
    private = SegmentMemory(JOB + 1, "replica-0-i1").allocate("gradient", true.nbytes)
    really_open = os.open

    def swap_and_open(path: str, flags: int) -> int:
        os.dup2(private.descriptor, true.descriptor)
        return really_open(path, flags)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", swap_and_open)
        with pytest.raises(SegmentRefused, match="instead of a segment of this job"):
            segments.open_segment(true, JOB)
    private.close()


def test_memory_that_could_shrink_is_refused() -> None:
    name = f"{segments.name_prefix(JOB)}replica-0-i1-gradient-1"
    descriptor = os.memfd_create(name, os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, 4096)
    description = Description(
        segment=1,
        process=os.getpid(),
        descriptor=descriptor,
        nbytes=4096,
        name=name,
        access=Access.READ,
    )
    with pytest.raises(SegmentRefused, match="not sealed"):
        segments.open_segment(description, JOB)
    fcntl.fcntl(descriptor, 1033, 1 | 2 | 4)
    assert segments.open_segment(description, JOB).nbytes == 4096
    os.close(descriptor)


def description_with(**changed: object) -> bytes:
    true = {"segment": 1, "process": 1, "descriptor": 1, "nbytes": 1, "name": "", "access": "read"}
    segments.parse(json.dumps(true).encode())
    return json.dumps(true | changed).encode()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b"[" * 1000,
        b"x" * 2000,
        description_with(segment=True),
        description_with(process=-1),
        description_with(nbytes=1 << 62),
        description_with(access="all"),
        description_with(name=1),
        description_with(more=1),
    ],
)
def test_what_is_no_description_is_refused(payload: bytes) -> None:
    with pytest.raises(SegmentRefused):
        segments.parse(payload)


def test_limits_hold_per_peer_and_for_all(memory: SegmentMemory) -> None:
    limits = Limits(segments_per_peer=2, segment_bytes_per_peer=10_000, segments=3)
    attachments = Attachments(JOB, limits)
    attachments.attach(b"a", described(memory, Access.READ))
    attachments.attach(b"a", described(memory, Access.READ))
    with pytest.raises(SegmentRefused, match="3 segments of this peer"):
        attachments.attach(b"a", described(memory, Access.READ))
    with pytest.raises(SegmentRefused, match="10001 bytes of this peer"):
        attachments.attach(b"b", described(memory, Access.READ, 10_001))
    attachments.attach(b"b", described(memory, Access.READ))
    with pytest.raises(SegmentRefused, match="4 segments of all peers"):
        attachments.attach(b"c", described(memory, Access.READ))
    attachments.close()


def test_a_part_outside_of_the_segment_is_refused(memory: SegmentMemory) -> None:
    attachments = Attachments(JOB, Limits())
    description = described(memory, Access.READ)
    attachments.attach(b"a", description)
    key = (description.segment, Access.READ)
    assert attachments.part(b"a", key, 4000, 96).nbytes == 96
    for peer, wanted, offset in (
        (b"a", key, 4001),
        (b"b", key, 0),
        (b"a", (key[0], Access.WRITE), 0),
    ):
        with pytest.raises(SegmentRefused):
            attachments.part(peer, wanted, offset, 96)
    attachments.close()


def test_attaching_twice_maps_once_and_forgetting_unmaps(memory: SegmentMemory) -> None:
    attachments = Attachments(JOB, Limits(segments_per_peer=1))
    description = described(memory, Access.READ, mmap.PAGESIZE)
    own = mappings(description.name)
    attachments.attach(b"a", description)
    attachments.attach(b"a", description)
    assert mappings(description.name) == own + 1

    attachments.forget(b"a")
    assert mappings(description.name) == own
    attachments.close()


def mappings(name: str) -> int:
    return Path("/proc/self/maps").read_text().count(name)
