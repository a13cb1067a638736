"""Writes the generated files of the manifest: `python -m disttrain.job.reference FOLDER [--check]`.

With `--check` nothing is written; the exit code is 1 if a file is not current.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from disttrain.job import reference_page, schema

REMEDY = "run `make generate` and commit the result"


def main(arguments: Sequence[str]) -> int:
    """Write or check the files in a folder; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m disttrain.job.reference")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="fail if a file is not current")
    options = parser.parse_args(arguments)
    if not options.check:
        _write(options.folder)
        return 0
    stale = stale_files(options.folder)
    sys.stderr.writelines(f"{file}: not current; {REMEDY}\n" for file in stale)
    return 1 if stale else 0


def stale_files(folder: Path) -> list[Path]:
    """Return the generated files of a folder that are missing or not what would be written."""
    return [file for file, text in _files(folder).items() if not _holds(file, text)]


def _files(folder: Path) -> dict[Path, str]:
    return {
        folder / "manifest.md": reference_page.page(),
        folder / "disttrain-job.schema.json": schema.schema_text(),
    }


def _holds(file: Path, text: str) -> bool:
    return file.is_file() and file.read_text(encoding="utf-8") == text


def _write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in _files(folder).items():
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
