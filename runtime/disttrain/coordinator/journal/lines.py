"""The lines of a journal: JSON behind a checksum. Pure."""

import zlib
from collections.abc import Iterator

AROUND = 10
"""Bytes of a line beside its content."""


def line(content: bytes) -> bytes:
    """The line with this content."""
    return b"%08x %s\n" % (zlib.crc32(content), content)


def good(content: bytes) -> Iterator[bytes]:
    """What is in the leading lines whose checksums hold."""
    for text in content.split(b"\n")[:-1]:
        if not is_whole(text):
            return
        yield text[9:]


def is_whole(text: bytes) -> bool:
    """Whether a line, without its end, has the checksum that it says."""
    return text[8:9] == b" " and text[:8] == b"%08x" % zlib.crc32(text[9:])
