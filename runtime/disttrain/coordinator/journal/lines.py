"""The lines of a journal, each behind a checksum: what of a file is whole after a crash. Pure.

In a file a line holds `NUMBER SYNCED DECIDED`: the number of the decision in this file, how many
were on disk for sure when it was written, and the decision; without one it only marks what is on
disk. Between two syncs pages reach a disk in any order, and those that did not are zeros: what was
never synced may be torn anywhere. What was synced was told, and must be there.
"""

import zlib
from collections.abc import Iterator


class Damaged(ValueError):
    """Something that was on disk is missing or changed."""


def line(content: bytes) -> bytes:
    return b"%08x %s\n" % (zlib.crc32(content), content)


def good(content: bytes) -> Iterator[bytes]:
    """What is in the leading lines whose checksums hold."""
    for text in content.split(b"\n")[:-1]:
        if not _is_whole(text):
            return
        yield text[9:]


def decision(number: int, synced: int, decided: bytes) -> bytes:
    """The line of a file with a decision, of which the first is 1."""
    return line(b"%d %d %s" % (number, synced, decided))


def mark(synced: int) -> bytes:
    """Says that so many decisions are on disk.

    On a line of its own even if the end of the line before it is damaged.
    """
    return b"\n" + decision(synced, synced, b"")


def read(content: bytes) -> list[bytes]:
    """The snapshot, and the decisions up to where the file was torn.

    Raises Damaged when one is missing that was on disk, ValueError without a snapshot.
    """
    snapshot, *texts = content.split(b"\n")[:-1] or [b""]
    if not _is_whole(snapshot):
        raise ValueError
    first = next(filter(_is_whole, texts), b"")
    if first[9:10] == b"[":
        return [snapshot[9:], *_unnumbered(texts)]
    return [snapshot[9:], *_numbered(texts)]


def _numbered(texts: list[bytes]) -> Iterator[bytes]:
    last, is_torn = 0, False
    for text in filter(None, texts):
        # A page that is missing is zeros, which stick to the line that follows them.
        bare = text.lstrip(b"\0")
        is_torn = is_torn or len(bare) < len(text) or not _is_whole(bare)
        if not _is_whole(bare):
            continue
        number, synced, decided = bare[9:].split(b" ", 2)
        if int(synced) > last or (not is_torn and int(number) > last + 1):
            message = f"decision {last + 1} is missing, and a later one is there"
            raise Damaged(message)
        if decided and not is_torn:
            last = int(number)
            yield decided


def _unnumbered(texts: list[bytes]) -> Iterator[bytes]:
    """As earlier versions wrote them: only the last line could be told to be torn."""
    is_torn = False
    for number, text in enumerate(texts, start=1):
        is_whole = _is_whole(text)
        if is_whole and is_torn:
            message = f"line {number} is whole, but one before it is not"
            raise Damaged(message)
        is_torn = is_torn or not is_whole
        if is_whole:
            yield text[9:]


def _is_whole(text: bytes) -> bool:
    """Whether a line, without its end, has the checksum that it says."""
    return text[8:9] == b" " and text[:8] == b"%08x" % zlib.crc32(text[9:])
