"""What is whole in a journal's file after a crash, and what is damage. Pure.

A line holds `NUMBER SYNCED DECIDED`: the number of the decision in this file, how many were on disk
for sure when it was written, and the decision; without one it only marks what is on disk. Between
two syncs pages reach a disk in any order, and those that did not are zeros: what was never synced
may be torn anywhere. What was synced was told, and must be there.
"""

from collections.abc import Iterator
from typing import NamedTuple

from disttrain.coordinator.journal import lines


class Damaged(ValueError):
    """Something that was on disk is missing or changed."""


class _Line(NamedTuple):
    number: int
    synced: int
    decided: bytes


def line(number: int, synced: int, decided: bytes) -> bytes:
    """A decision, the first of a file is 1."""
    return lines.line(b"%d %d %s" % (number, synced, decided))


def mark(synced: int) -> bytes:
    """Says that so many decisions are on disk.

    On a line of its own even if the end of the line before it is damaged.
    """
    return b"\n" + line(synced, synced, b"")


def read(content: bytes) -> list[bytes]:
    """The snapshot, and the decisions up to where the file was torn.

    Raises Damaged when one is missing that was on disk, ValueError without a snapshot.
    """
    snapshot, *texts = content.split(b"\n")[:-1] or [b""]
    if not lines.is_whole(snapshot):
        raise ValueError
    first = next(filter(lines.is_whole, texts), b"")
    if first[9:10] == b"[":
        return [snapshot[9:], *_unnumbered(texts)]
    return [snapshot[9:], *_numbered(texts)]


def _numbered(texts: list[bytes]) -> Iterator[bytes]:
    last, is_torn = 0, False
    for text in filter(None, texts):
        # A page that is missing is zeros, which stick to the line that follows them.
        bare = text.lstrip(b"\0")
        is_torn = is_torn or len(bare) < len(text) or not lines.is_whole(bare)
        if not lines.is_whole(bare):
            continue
        found = _parsed(bare[9:])
        if found.synced > last or (not is_torn and found.number > last + 1):
            message = f"decision {last + 1} is missing, and a later one is there"
            raise Damaged(message)
        if found.decided and not is_torn:
            last = found.number
            yield found.decided


def _parsed(content: bytes) -> _Line:
    number, synced, decided = content.split(b" ", 2)
    return _Line(int(number), int(synced), decided)


def _unnumbered(texts: list[bytes]) -> Iterator[bytes]:
    """As earlier versions wrote them: only the last line could be told to be torn."""
    is_torn = False
    for number, text in enumerate(texts, start=1):
        is_whole = lines.is_whole(text)
        if is_whole and is_torn:
            message = f"line {number} is whole, but one before it is not"
            raise Damaged(message)
        is_torn = is_torn or not is_whole
        if is_whole:
            yield text[9:]
