"""Ordinary memory for transports that put payloads into messages."""

import mmap
from contextlib import suppress

from disttrain.transport.header import Header
from disttrain.transport.interface import Buffer

_HUGE_PAGE_BYTES = 2 << 20
_PLACE_BYTES = 2 << 20
"""A chunk over TCP."""
_MOST_SPARE = 4


class OrdinaryMemory:
    """Private pages of this process."""

    def __init__(self) -> None:
        self._buffers: list[Buffer] = []

    def allocate(self, name: str, nbytes: int) -> Buffer:
        """Page-aligned and zero; pages are taken from the system when they are first touched."""
        buffer = Buffer(name=name, view=_pages(nbytes)[:nbytes])
        self._buffers.append(buffer)
        return buffer

    def close(self) -> None:
        for buffer in self._buffers:
            buffer.close()
        self._buffers.clear()


class Pages:
    """Where a listener puts the payloads that it receives; places are used again.

    Belongs to one thread.
    """

    def __init__(self) -> None:
        self._spare: list[memoryview] = []

    def place(self, header: Header) -> memoryview | None:
        """Exactly as long as the payload; None, fresh memory, for those that are no whole chunk."""
        nbytes = header.payload_bytes
        if not _PLACE_BYTES // 2 < nbytes <= _PLACE_BYTES:
            return None
        return (self._spare.pop() if self._spare else _pages(_PLACE_BYTES))[:nbytes]

    def take_back(self, place: memoryview) -> None:
        """Nobody reads there any more; memory of others is left alone."""
        pages = place.obj
        if not isinstance(pages, mmap.mmap) or len(pages) != _PLACE_BYTES:
            return
        if len(self._spare) < _MOST_SPARE:
            self._spare.append(memoryview(pages))


def _pages(nbytes: int) -> memoryview:
    """Fresh and zero; the system gives them when they are first touched."""
    pages = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _prefer_huge(pages)
    return memoryview(pages)


def _prefer_huge(pages: mmap.mmap) -> None:
    """Fewer translations of addresses; a kernel without huge pages refuses, and none are needed."""
    if hasattr(mmap, "MADV_HUGEPAGE") and len(pages) >= _HUGE_PAGE_BYTES:
        with suppress(OSError):
            pages.madvise(mmap.MADV_HUGEPAGE)
