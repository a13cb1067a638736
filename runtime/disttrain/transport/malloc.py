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
    # One arena: the thread that receives would otherwise take memory from one that keeps none.
    "MALLOC_ARENA_MAX": "1",
    # Huge pages where the system allows them on request: reading is a fifth faster. Copies of 3 MiB
    # and more go past the caches, which they would only empty: two thirds of the time.
    "GLIBC_TUNABLES": f"glibc.malloc.hugetlb=1:glibc.cpu.x86_non_temporal_threshold={3 << 20}",
}
"""Environment to add before `exec`; set later, it has no effect. Other C libraries ignore it."""


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE_BYTES = 1 << 20
_LEFT_BYTES = 16 << 20


def give_back_at_once() -> None:
    """Give large memory back to the system whenever it is freed, from now on.

    For who takes and frees large pieces of many sizes all the time, and wants to have little: kept,
    they lie between others and fit nothing, which doubles what such a process has. The price are
    the page faults that `MALLOC_ENVIRONMENT` saves, in messages too.
    """
    if hasattr(_C_LIBRARY, "mallopt"):
        _C_LIBRARY.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        _C_LIBRARY.mallopt(_M_TRIM_THRESHOLD, _LEFT_BYTES)


def trim() -> None:
    """Give unused memory back to the system now, where glibc's allocator keeps it.

    For the moment after large memory was freed for good; under MALLOC_ENVIRONMENT nothing else
    does it.
    """
    if hasattr(_C_LIBRARY, "malloc_trim"):
        _C_LIBRARY.malloc_trim(0)
