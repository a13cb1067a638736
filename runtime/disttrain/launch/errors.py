"""What can go wrong while processes are started and supervised.

FinalError
  InvalidLaunchConfig    a launch file is missing or not what this version writes
  OutputFolderInUse      the output folder holds another run
  OutputFolderUnusable   the output folder cannot be made or written into
  CheckpointsUnusable    the folder that the manifest names for checkpoints takes no files
  NotDivisible           a model cannot be divided among partitions as the job asks
  NotARunFolder          `resume` or `status` of a folder without a run
  NothingToResume        `resume` of a run that ended before its first checkpoint
  NotJoinable            a run that nobody can join from another machine
  NotTakenIn             a run does not take a joiner in
  NotRemoved             there is no such joiner to be removed
  EvaluationLost         a process that evaluates a part of a model has ended, or hangs
"""

from disttrain.errors import FinalError


class InvalidLaunchConfig(FinalError):
    """The file that tells a process its role is missing, torn or of another version."""


class OutputFolderInUse(FinalError):
    """The output folder is not empty; nothing in it is touched."""


class OutputFolderUnusable(FinalError):
    """The output folder is none, cannot be made, or takes no files."""


class CheckpointsUnusable(FinalError):
    """The folder that `spec.checkpoint.uri` names cannot be made, or takes no files."""


class NotDivisible(FinalError):
    """A job's model cannot be divided as it asks; the message names the layer."""


class NotARunFolder(FinalError):
    """The folder does not hold a run of `disttrain run`."""


class NothingToResume(FinalError):
    """The run came to its end and left no checkpoint to go on from."""


class NotJoinable(FinalError):
    """Nobody can join the run from another machine; the message says what would let them."""


class NotTakenIn(FinalError):
    """A run does not take this joiner in; nothing was started."""


class NotRemoved(FinalError):
    """The run has no such joiner; nothing was done."""


class EvaluationLost(FinalError):
    """A process that evaluates a part of a model for a command has ended, or hangs.

    The message says how.
    """
