"""What can go wrong with a checkpoint.

CheckpointError
├── NotWritten            it could not be written (full disk); worth trying again
├── StoreAway             an object store does not answer; worth trying again
├── StoreRefused          an object store cannot be used at all: a package is missing (final)
├── StoreDenied           an object store lets nobody in, or its bucket is missing (final)
└── CheckpointRefused     final for this checkpoint
    ├── Corrupt           a file is missing, short, changed or not what it should be
    ├── NoCheckpoint      there is none where one was looked for
    ├── NoVector          it has no such vector
    ├── WrongModel        it was made of another model
    └── AlreadyThere      a checkpoint of this number, or the file to write, exists
FinalError
└── WrongSnapshot         a checkpoint does not fit the job: another update rule, other vectors
"""

from pathlib import Path

from disttrain.errors import DistTrainError, FinalError, RetryableError


class CheckpointError(DistTrainError):
    """Root of this package's errors."""


class NotWritten(CheckpointError, RetryableError):
    """A file of a checkpoint could not be written; earlier checkpoints are untouched."""


class StoreAway(CheckpointError, RetryableError):
    """The object store gave no answer, or an error."""


class StoreRefused(CheckpointError, FinalError):
    """The uri of an object store means nothing here."""


class StoreDenied(CheckpointError, FinalError):
    """The object store is there, but not for this process. Who trains already tries again."""


class CheckpointRefused(CheckpointError, FinalError):
    """This checkpoint cannot be used."""


class Corrupt(CheckpointRefused):
    """A checkpoint is damaged. `previous` is the newest older one that is whole, if there is."""

    def __init__(self, file: Path | str, reason: str, previous: Path | None = None) -> None:
        offer = f"; the one before it is whole: {previous}" if previous else ""
        if previous:
            offer += " (to go on from there, delete the damaged folder)"
        super().__init__(f"{file}: {reason}{offer}")
        self.file = file
        self.reason = reason
        self.previous = previous


class NoVector(CheckpointRefused):
    """The job did not keep what was asked for."""


class NoCheckpoint(CheckpointRefused):
    """There is no checkpoint where one was looked for."""


class WrongModel(CheckpointRefused):
    """The checkpoint was made of another model; the message names the first difference."""


class AlreadyThere(CheckpointRefused):
    """Nothing is overwritten."""


class WrongSnapshot(FinalError):
    """Restored values do not fit what the job wants."""
