"""`python -m mutants [WORD...]`: remove each guard of the table and see a test fail.

Works on copies of the tree, one for each worker. Names that contain one of the words are taken, or
all of them. Exit code 1 when a mutant is not caught.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from mutants import trial
from mutants.mutant import Mutant
from mutants.table import MUTANTS

ROOT = Path(__file__).parents[2]
WORKERS = 2
_Found = TypeVar("_Found")


def main() -> int:
    """Try the chosen mutants; prints one line each, and how many were caught and were not."""
    words = sys.argv[1:]
    chosen = [each for each in MUTANTS if not words or any(word in each.name for word in words)]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        verdicts = _try_all(chosen, Path(folder))
    caught = verdicts.count(trial.CAUGHT)
    sys.stdout.write(f"mutants: {caught} caught, {len(verdicts) - caught} not caught\n")
    return int(caught < len(verdicts))


def _try_all(chosen: list[Mutant], folder: Path) -> list[str]:
    copies: SimpleQueue[Path] = SimpleQueue()
    for number in range(WORKERS):
        copy = folder / str(number)
        _copy_tree(copy)
        copies.put(copy)

    def in_a_copy(action: Callable[[Path], _Found]) -> _Found:
        copy = copies.get()
        try:
            return action(copy)
        finally:
            copies.put(copy)

    def tried(mutant: Mutant) -> tuple[Mutant, str, float]:
        began = time.monotonic()
        seconds = usual[mutant.tests]
        word = in_a_copy(lambda copy: trial.verdict(mutant, copy, _run_tests, seconds))
        return mutant, word, time.monotonic() - began

    def unchanged(tests: tuple[str, ...]) -> float | None:
        return in_a_copy(lambda copy: trial.usual_seconds(tests, copy, _run_tests))

    verdicts = []
    with ThreadPoolExecutor(WORKERS) as workers:
        sets = list(dict.fromkeys(mutant.tests for mutant in chosen))
        usual = dict(zip(sets, workers.map(unchanged, sets), strict=True))
        for mutant, word, seconds in workers.map(tried, chosen):
            verdicts.append(word)
            sys.stdout.write(f"{word:>8} {seconds:4.0f} s  {mutant.name}\n")
            sys.stdout.flush()
    return verdicts


def _copy_tree(copy: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)


def _run_tests(copy: Path, tests: tuple[str, ...], limit_seconds: float) -> int | None:
    paths = [str(copy / folder) for folder in ("runtime", "operator", "development")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    with suppress(subprocess.TimeoutExpired):
        return subprocess.run(
            command,
            cwd=copy,
            env=environment,
            capture_output=True,
            timeout=limit_seconds,
            check=False,
        ).returncode
    return None


if __name__ == "__main__":
    sys.exit(main())
