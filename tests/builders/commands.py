"""The command line as a person uses it: a process, its exit code and what it printed."""

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from builders.warm_processes import WarmCommand

TIMEOUT_SECONDS = 240.0


class Answer(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> dict[str, list[str]]:
        """Lines of a table by their first word, the head among them."""
        cells = (line.split() for line in self.out.splitlines())
        return {row[0]: row for row in cells if row}


def disttrain(*arguments: str | Path, folder: Path | None = None) -> Answer:
    """Run `disttrain` with these arguments in a folder, to its end."""
    with tempfile.TemporaryDirectory() as place:
        out, err = Path(place) / "out", Path(place) / "err"
        command = WarmCommand([str(each) for each in arguments], out, errors=err, folder=folder)
        try:
            code = command.wait(TIMEOUT_SECONDS)
        finally:
            command.kill()
        return Answer(code, out.read_text(), err.read_text())


def run(
    command: Sequence[str | Path],
    folder: Path | None,
    *,
    environment: Mapping[str, str] | None = None,
    stdin: str | None = None,
    seconds: float = TIMEOUT_SECONDS,
) -> Answer:
    """Run any command to its end, whatever that is."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)
