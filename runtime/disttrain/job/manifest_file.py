"""Reading manifests from files. The only module of this package that touches the disk for a job."""

from collections.abc import Sequence
from pathlib import Path

from disttrain.job import parsing
from disttrain.job.document import MAX_BYTES
from disttrain.job.errors import InvalidManifest
from disttrain.job.finding import Finding
from disttrain.job.spec import DistTrainJob


def read_text(file: Path) -> str:
    """Return the text of a manifest. InvalidManifest if it cannot be read or is not UTF-8."""
    try:
        with file.open("rb") as stream:
            # One byte more, so that the parser sees that there is too much.
            return stream.read(MAX_BYTES + 1).decode("utf-8-sig")
    except OSError as error:
        raise _unreadable(file, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _unreadable(
            file, f"must be UTF-8 text, got other bytes at position {error.start}"
        ) from error


def load_job(file: Path, assignments: Sequence[str] = ()) -> DistTrainJob:
    """Return the job of a file after assignments; InvalidManifest with all that is wrong."""
    return parsing.parse_job(read_text(file), source=str(file), assignments=assignments)


def _unreadable(file: Path, message: str) -> InvalidManifest:
    return InvalidManifest(str(file), [Finding(path=(), message=message)])
