"""A disk that is soon full."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, size: int = 4 << 20) -> Iterator[Path]:
    """A file system of so many bytes; skips the test where none can be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can be mounted by root only")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(file: Path) -> None:
    """Take all the space that is left."""
    with file.open("wb", buffering=0) as opened:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    opened.write(b"\0" * size)
            except OSError:
                continue
