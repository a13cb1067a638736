"""What can go wrong in a replica.

FinalError
├── ModelNotSupported    the model holds a tensor that a flat vector cannot
├── DeviceNotFound       the manifest asks for a GPU that is not there
├── DeviceTooOld         the GPU that is there does not compute with what the manifest says
├── TooManyShards        this process may not open a connection to each shard
├── OptimizerRefused     torch does not take the manifest's arguments of an optimizer
├── WrongStrategy        a loop of its own wants to join a job that is not of downpour
└── JobEnded             a loop of its own joins, or goes on, after the job has ended
"""

from disttrain.errors import FinalError


class ModelNotSupported(FinalError):
    """A tensor of the model has a type that no vector carries, or a name that no checkpoint holds.

    The message names it.
    """


class DeviceNotFound(FinalError):
    """The device of the manifest is not on this machine."""


class DeviceTooOld(FinalError):
    """The GPU of this machine does not compute with the numbers that the manifest says."""


class TooManyShards(FinalError):
    """The job has more shards than this process can have connections to."""


class OptimizerRefused(FinalError):
    """An optimizer of torch.optim cannot be made, or take a step, with the manifest's arguments."""


class WrongStrategy(FinalError):
    """The job works in another way than who wants to join it."""


class JobEnded(FinalError):
    """The job takes no gradients any more; a loop that joins it with an optimizer may end."""
