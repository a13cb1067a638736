"""Files that are made from code and committed: written anew, or compared with what would be."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

REMEDY = "run `make generate` and commit the result"

Files = Callable[[Path], Mapping[Path, str]]
"""What is made, by where it belongs, below a repository."""


def main(program: str, files: Files, arguments: Sequence[str]) -> int:
    """Write or check the files below the folder that the arguments name; return the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    parser.add_argument("root", type=Path)
    parser.add_argument("--check", action="store_true", help="fail if a file is not current")
    options = parser.parse_args(arguments)
    made = files(options.root)
    if not options.check:
        _write(made)
        return 0
    found = stale(made)
    sys.stderr.writelines(f"{file}: not current; {REMEDY}\n" for file in found)
    return 1 if found else 0


def stale(made: Mapping[Path, str]) -> list[Path]:
    """Return the files that are missing or not what would be written."""
    return [file for file, text in made.items() if not _holds(file, text)]


def _holds(file: Path, text: str) -> bool:
    return file.is_file() and file.read_text(encoding="utf-8") == text


def _write(made: Mapping[Path, str]) -> None:
    for file, text in made.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
