"""The command line as a person uses it: a process, its exit code and what it printed."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

TIMEOUT_SECONDS = 240.0


class Answer(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def disttrain(*arguments: str | Path, folder: Path | None = None) -> Answer:
    """Run `disttrain` with these arguments in a folder, to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "disttrain", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)
