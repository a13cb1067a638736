"""Errors of the operator.

DistTrainError
├── RetryableError
│   ├── Unavailable      the API server does not answer, or not now
│   ├── Gone             a watch cannot go on from where it was: list again
│   └── NotHeld          another operator may look after these jobs now
└── FinalError
    ├── NotFound         there is no such object
    ├── Conflict         it is there already, or is another one by now
    ├── Refused          the API server does not take it: its words say why
    ├── Forbidden        the operator may not, or a quota does not let it
    ├── ScopeLost        another operator looks after these jobs
    └── InvalidSettings  an environment variable, a kubeconfig
"""

from disttrain.errors import FinalError, RetryableError


class Unavailable(RetryableError):
    """The API server does not answer, or asks to come back later."""


class Gone(RetryableError):
    """The API server no longer knows what happened since that version."""


class NotHeld(RetryableError):
    """The operator does not know whether another one looks after these jobs now."""


class ScopeLost(FinalError):
    """Another operator looks after these jobs."""


class NotFound(FinalError):
    """There is no such object."""


class Conflict(FinalError):
    """The object is there already, or is not the one that was meant."""


class Refused(FinalError):
    """The API server does not take the object, whoever asks and whenever."""


class Forbidden(FinalError):
    """The operator may not do that, or a quota or a policy does not let it now."""


class InvalidSettings(FinalError):
    """The operator cannot run like this."""
