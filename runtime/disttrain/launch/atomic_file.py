"""Small files that a reader sees whole or not at all. Not durable: for what a crash may undo."""

import os
from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Put `content` into `path`, readable by this user only.

    Raises OSError; then nothing new lies beside the old file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
