"""How many connections a process may have."""

import resource
from contextlib import suppress

PER_CONNECTION = 2
"""Descriptors of a client's connection: the bell and the socket itself."""
ASIDE = 256
"""For everything else: files, pipes, segments, the threads of libraries."""
MOST_SOCKETS = 1 << 14
"""Of one process."""
_WANTED = PER_CONNECTION * MOST_SOCKETS + ASIDE


def raise_limit() -> int:
    """Let this process open as many as it may need, as far as the hard limit goes; that many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _WANTED if soft == resource.RLIM_INFINITY else soft
