"""What becomes of a mutant when its tests run: it is caught, or the word for why not."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from mutants.mutant import Mutant

Run: TypeAlias = Callable[[Path, tuple[str, ...], float], int | None]
"""Run tests in a copy of the tree for so many seconds; pytest's exit code, None if they go on."""
CAUGHT: Final = "caught"
LIMIT_SECONDS: Final = 600.0
"""Of a row's tests as the tree is."""
_PATIENCE: Final = 5
_PATIENCE_SECONDS: Final = 60.0
"""With a mutant they may take so many times as long, and so many seconds more."""


def usual_seconds(tests: tuple[str, ...], copy: Path, run: Run) -> float | None:
    """How long tests take as the tree is; None if they do not pass: they would catch everything."""
    began = time.monotonic()
    return time.monotonic() - began if run(copy, tests, LIMIT_SECONDS) == 0 else None


def verdict(mutant: Mutant, copy: Path, run: Run, usual: float | None) -> str:
    """Try a mutant in a copy of the tree, which is afterwards as before.

    `lost`: its text is not in its file; `unsound`: its tests fail without it; `timeout`: they wait
    for something that is no more, and nothing says that they do.
    """
    if usual is None:
        return "unsound"
    file = copy / mutant.file
    source = file.read_text()
    if source.count(mutant.old) != 1:
        return "lost"
    file.write_text(source.replace(mutant.old, mutant.new))
    try:
        code = run(copy, mutant.tests, _PATIENCE_SECONDS + _PATIENCE * usual)
    finally:
        file.write_text(source)
    if code is None:
        return "timeout"
    return {0: "survived", 1: CAUGHT}.get(code, f"exit {code}")
