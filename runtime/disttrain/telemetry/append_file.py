"""Opening a file of this user to add to it, in a folder in which others may have left a link."""

import os
from pathlib import Path


def descriptor(path: str | Path, flags: int = 0) -> int:
    """Make or open `path` for appending, readable by this user only if it is new.

    Also an `opener` of `open`, whose flags it adds. Raises OSError, for a symbolic link, too.
    """
    appending = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags | appending, 0o600)
