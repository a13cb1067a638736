"""Where a job's checkpoints and its journal lie: a folder, or a place in an object store. Pure."""

from dataclasses import dataclass
from pathlib import Path

from disttrain.job import object_uri
from disttrain.job.spec import DistTrainJob

_COPIES = "copies"


@dataclass(frozen=True, slots=True)
class Location:
    """A place for one job alone."""

    folder: Path
    """The folder; of a place in an object store, one for what a process copies from and to it."""
    uri: str = ""
    """The place in an object store; empty: there is the folder alone."""

    def __str__(self) -> str:
        return self.uri or str(self.folder)


def of(job: DistTrainJob, uid: str, run_folder: Path, process: str) -> Location:
    """The location that `spec.checkpoint.uri` means; a relative path begins at the run's folder.

    In an object store each job has a place of its own below the uri, as `process` has a folder.
    """
    given = job.spec.checkpoint
    if given.is_object_store:
        uri = object_uri.of_job(given.uri, job.metadata.name, uid)
        return Location(run_folder / _COPIES / process, uri)
    return Location(run_folder / object_uri.on_disk(given.uri))
