"""Where a job's checkpoints and its journal lie: a folder, or a place in an object store. Pure."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Location:
    """A place for one job alone."""

    folder: Path
    """The folder; of a place in an object store, one for copies of what a process reads there."""


def of(uri: str, run_folder: Path) -> Location:
    """The location that `spec.checkpoint.uri` means; a relative path begins at the run's folder."""
    path = unquote(urlsplit(uri).path) if uri.startswith("file://") else uri
    return Location(run_folder / path)
