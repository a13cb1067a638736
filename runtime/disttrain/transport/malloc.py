"""Settings of glibc's allocator for processes that move large messages.

Without them it gives the pages of every message back to the kernel and faults them in again for
the next one: up to 96,000 page faults per gigabyte and half of the rate.
"""

import ctypes

_C_LIBRARY = ctypes.CDLL(None)

MALLOC_ENVIRONMENT: dict[str, str] = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""Environment to add before `exec`; setting it later has no effect. Other allocators ignore it."""


def trim() -> None:
    """Give unused memory back to the system now, where glibc's allocator keeps it.

    For the moment after large memory was freed for good; under MALLOC_ENVIRONMENT nothing else
    does it.
    """
    if hasattr(_C_LIBRARY, "malloc_trim"):
        _C_LIBRARY.malloc_trim(0)
