"""Small files that a reader sees whole or not at all. Not durable: for what a crash may undo."""

import os
import tempfile
from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Put `content` into `path`, readable by this user only.

    Raises OSError; then nothing new lies beside the old file.
    """
    # A name that nobody can guess, made only if it is not there: no planted link is followed.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
