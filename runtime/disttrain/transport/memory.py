"""Ordinary memory for transports that put payloads into messages."""

import mmap
from contextlib import suppress

from disttrain.transport.interface import Buffer

_HUGE_PAGE_BYTES = 2 << 20


class OrdinaryMemory:
    """Private pages of this process."""

    def __init__(self) -> None:
        self._buffers: list[Buffer] = []

    def allocate(self, name: str, nbytes: int) -> Buffer:
        """Page-aligned and zero; pages are taken from the system when they are first touched."""
        buffer = Buffer(name=name, view=pages(nbytes)[:nbytes])
        self._buffers.append(buffer)
        return buffer

    def close(self) -> None:
        for buffer in self._buffers:
            buffer.close()
        self._buffers.clear()


def pages(nbytes: int) -> memoryview:
    """Fresh and zero; the system gives them when they are first touched."""
    fresh = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _prefer_huge(fresh)
    return memoryview(fresh)


def _prefer_huge(pages: mmap.mmap) -> None:
    """Fewer translations of addresses; a kernel without huge pages refuses, and none are needed."""
    if hasattr(mmap, "MADV_HUGEPAGE") and len(pages) >= _HUGE_PAGE_BYTES:
        with suppress(OSError):
            pages.madvise(mmap.MADV_HUGEPAGE)
