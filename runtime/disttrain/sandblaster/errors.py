"""What can go wrong with sharded vectors and batches.

DistTrainError
└── FinalError
    ├── UnknownVector       an operation reads a vector that was never made
    ├── ProgramRefused      a program of an old coordinator, or one out of its turn
    ├── WrongEvaluation     a gradient for an evaluation that is not under way
    ├── WrongChunk          a part of a gradient that fits nowhere
    ├── StagingFull         more gradients are staged than there is memory for
    └── NotStaged           an attempt is to be committed that is not here as a whole
"""

from disttrain.errors import FinalError


class UnknownVector(FinalError):
    """An operation reads a vector that is not there."""


class ProgramRefused(FinalError):
    """A program that must not be carried out."""


class WrongEvaluation(FinalError):
    """A gradient that belongs to another evaluation."""


class WrongChunk(FinalError):
    """A part of a gradient that no replica of this job would send."""


class StagingFull(FinalError):
    """No memory is left for another attempt."""


class NotStaged(FinalError):
    """What is to be committed has not arrived here."""
