"""Reading manifests from files. The only module of this package that touches the disk for a job."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

from disttrain.job import parsing
from disttrain.job.document import MAX_BYTES
from disttrain.job.finding import Finding, InvalidManifest
from disttrain.job.parsing import Accepted
from disttrain.job.spec import DistTrainJob

STANDARD_INPUT = Path("-")


def read_text(file: Path) -> str:
    """Return the text of a manifest; `-` is the standard input.

    Raises InvalidManifest if it cannot be read or is not UTF-8.
    """
    try:
        with _opened(file) as stream:
            # One byte more, so that the parser sees that there is too much.
            return stream.read(MAX_BYTES + 1).decode("utf-8-sig")
    except OSError as error:
        raise _unreadable(file, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _unreadable(
            file, f"must be UTF-8 text, got other bytes at position {error.start}"
        ) from error


def load_job(file: Path) -> DistTrainJob:
    """Return the job of a file; InvalidManifest with all that is wrong."""
    return load_accepted(file).job


def load_accepted(file: Path, assignments: Sequence[str] = ()) -> Accepted:
    """Return the job of a file after assignments, with the warnings. Raises as `load_job`."""
    return parsing.parse_accepted(read_text(file), source=str(file), assignments=assignments)


def _opened(file: Path) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if file == STANDARD_INPUT else file.open("rb")


def _unreadable(file: Path, message: str) -> InvalidManifest:
    return InvalidManifest(str(file), [Finding(path=(), message=message)])
