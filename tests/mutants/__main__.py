"""`python -m mutants [WORD...]`: remove each guard of the table and see a test fail.

Works on a copy of the tree. Names that contain one of the words are taken, or all of them.
Exit code 1 when a mutant survives, or when its text is not in its file any more.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mutants.mutant import Mutant
from mutants.table import MUTANTS

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 600
"""Of one mutant's tests; a mutant may make one wait for ever."""


def main() -> int:
    """Try the chosen mutants; prints one line each, and how many were caught and survived."""
    words = sys.argv[1:]
    chosen = [each for each in MUTANTS if not words or any(word in each.name for word in words)]
    survived = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        _copy_tree(copy)
        for mutant in chosen:
            began = time.monotonic()
            verdict = _try(mutant, copy)
            survived += verdict != "caught"
            sys.stdout.write(f"{verdict:>8} {time.monotonic() - began:4.0f} s  {mutant.name}\n")
            sys.stdout.flush()
    sys.stdout.write(f"mutants: {len(chosen) - survived} caught, {survived} survived\n")
    return int(bool(survived))


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


def _try(mutant: Mutant, copy: Path) -> str:
    file = copy / mutant.file
    source = file.read_text()
    if source.count(mutant.old) != 1:
        return "lost"
    file.write_text(source.replace(mutant.old, mutant.new))
    try:
        code = _run_tests(mutant, copy)
    except subprocess.TimeoutExpired:
        return "caught"
    finally:
        file.write_text(source)
    return {0: "survived", 1: "caught"}.get(code, f"exit {code}")


def _run_tests(mutant: Mutant, copy: Path) -> int:
    paths = [str(copy / folder) for folder in ("runtime", "operator", "monitoring")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.tests]
    return subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, timeout=LIMIT_SECONDS, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
