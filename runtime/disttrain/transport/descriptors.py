"""How many connections a process may have: descriptors of the system, sockets of ZeroMQ."""

import resource
from contextlib import suppress

PER_CONNECTION = 3
"""Of a client's connection: the bell, ZeroMQ's mailbox, and the socket itself."""
ASIDE = 256
"""For everything else: files, pipes, segments, the threads of libraries."""
MOST_SOCKETS = 1 << 14
"""Of one process. ZeroMQ's own default is 1,023; each place costs it 8 bytes."""
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
