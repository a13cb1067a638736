"""A journal's file after a crash: what was synced is there, or its absence is noticed."""

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disttrain.coordinator.journal import lines
from disttrain.coordinator.journal.lines import Damaged

PAGE = 64
"""Bytes; of a disk some thousand. The smaller, the more of them a short file has."""
SNAPSHOT = b"{}"


@dataclass(frozen=True)
class Written:
    """A file as its writer left it."""

    content: bytes
    synced_bytes: int
    """Of those that the last sync waited for."""
    synced: int
    """Decisions that may have been told."""
    decisions: list[bytes]


def written(batches: list[list[int]], *, ends_synced: bool) -> Written:
    """By batches of decisions, each of so many bytes; all are synced but perhaps the last."""
    content, decisions, synced = lines.line(SNAPSHOT), [], 0
    synced_bytes = len(content)
    for at, batch in enumerate(batches):
        for size in batch:
            decisions.append(b"[%s]" % (b"x" * size))
            content += lines.decision(len(decisions), synced, decisions[-1])
        if at < len(batches) - 1 or ends_synced:
            synced, synced_bytes = len(decisions), len(content)
            content += lines.mark(synced)
    return Written(content, synced_bytes, synced, decisions)


sizes = st.lists(st.lists(st.integers(0, 3 * PAGE), min_size=1, max_size=8), min_size=1, max_size=6)


@given(batches=sizes, chosen=st.randoms(use_true_random=False), reserve=st.integers(0, 3 * PAGE))
def test_pages_that_did_not_reach_the_disk_cost_nothing_that_was_synced(
    batches: list[list[int]], chosen: random.Random, reserve: int
) -> None:
    made = written(batches, ends_synced=False)
    after = made.content + bytes(reserve)
    before = made.content[: made.synced_bytes].ljust(len(after), b"\0")
    pages = range(0, len(after), PAGE)
    torn = b"".join(chosen.choice((before, after))[at : at + PAGE] for at in pages)

    _, *found = lines.read(torn)

    assert len(found) >= made.synced
    assert found == made.decisions[: len(found)]


@given(batches=sizes, place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_in_what_was_synced_is_damage_or_costs_nothing(
    batches: list[list[int]], place: float, bit: int
) -> None:
    made = written(batches, ends_synced=True)
    content, first = bytearray(made.content), len(lines.line(SNAPSHOT))
    content[first + int(place * (len(content) - first))] ^= 1 << bit

    try:
        _, *found = lines.read(bytes(content))
    except Damaged:
        return
    assert found == made.decisions


def test_a_missing_line_is_damage_whether_or_not_it_was_synced() -> None:
    decided = [lines.decision(number, 0, b"[]") for number in (1, 2, 4)]

    with pytest.raises(Damaged, match="decision 3 is missing"):
        lines.read(lines.line(SNAPSHOT) + b"".join(decided))


def test_an_earlier_versions_file_may_be_torn_at_its_end_alone() -> None:
    old = [lines.line(text) for text in (SNAPSHOT, b"[1]", b"[2]")]

    assert lines.read(b"".join(old)) == [SNAPSHOT, b"[1]", b"[2]"]
    assert lines.read(b"".join(old)[:-3]) == [SNAPSHOT, b"[1]"]
    with pytest.raises(Damaged):
        lines.read(old[0] + b"x" + old[1][1:] + old[2])
