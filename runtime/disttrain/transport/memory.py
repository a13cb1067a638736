"""Ordinary memory for transports that put payloads into messages."""

import mmap

from disttrain.transport.interface import Buffer


class OrdinaryMemory:
    """Private pages of this process."""

    def __init__(self) -> None:
        self._buffers: list[Buffer] = []

    def allocate(self, name: str, nbytes: int) -> Buffer:
        """Page-aligned and zero; pages are taken from the system when they are first touched."""
        pages = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        buffer = Buffer(name=name, view=memoryview(pages)[:nbytes])
        self._buffers.append(buffer)
        return buffer

    def close(self) -> None:
        """Closes every buffer."""
        for buffer in self._buffers:
            buffer.close()
        self._buffers.clear()
