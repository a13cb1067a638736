"""Holds every packet of a TUN device for some time, and gives it back: a program, run as root.

The kernel routes packets to the device, and by the device to where they go. Packets are as the
kernel joins them, up to 64 KiB, so that few system calls carry much.
"""

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

_SET_NAME, _SET_OFFLOAD = 0x400454CA, 0x400454D0
_TUN, _NO_INFORMATION, _WITH_HEADER = 0x0001, 0x1000, 0x4000
_CHECKSUMS_AND_SEGMENTS = 0x1 | 0x2
_LARGEST = 1 << 17
_AT_ONCE = 64
"""Packets taken before those that are due are looked for."""
_MOST_HELD = 1 << 16
"""More are dropped, as a full router does."""


def main() -> None:
    """`NAME SECONDS`: say "ready" once the device is there, and relay until killed."""
    name, seconds = sys.argv[1], float(sys.argv[2])
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = _TUN | _NO_INFORMATION | _WITH_HEADER
    fcntl.ioctl(device, _SET_NAME, struct.pack("16sH22x", name.encode(), flags))
    fcntl.ioctl(device, _SET_OFFLOAD, _CHECKSUMS_AND_SEGMENTS)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    relay(device, seconds)


def relay(device: int, seconds: float) -> None:
    """All packets wait equally long, so they leave as they came."""
    held: deque[tuple[float, bytes]] = deque()
    while True:
        wait = max(0.0, held[0][0] - time.monotonic()) if held else None
        select.select([device], [], [], wait)
        due = time.monotonic() + seconds
        for _ in range(_AT_ONCE):
            try:
                packet = os.read(device, _LARGEST)
            except BlockingIOError:
                break
            if len(held) < _MOST_HELD:
                held.append((due, packet))
        now = time.monotonic()
        while held and held[0][0] <= now:
            _, packet = held.popleft()
            try:
                os.write(device, packet)
            except OSError:
                # Nobody has the address any more, or the kernel refuses the packet: it is lost.
                continue


if __name__ == "__main__":
    main()
