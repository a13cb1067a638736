"""What can go wrong in a replica.

FinalError
├── ModelNotSupported    the model holds a tensor that a flat vector cannot
└── DeviceNotFound       the manifest asks for a GPU that is not there
RetryableError
└── ThreadFailed         the push or fetch thread ended with an error; the process starts again
"""

from disttrain.errors import FinalError, RetryableError


class ModelNotSupported(FinalError):
    """A tensor of the model has a type that no vector carries; the message names it."""


class DeviceNotFound(FinalError):
    """The device of the manifest is not on this machine."""


class ThreadFailed(RetryableError):
    """A thread beside the training loop ended; its error is the cause."""
