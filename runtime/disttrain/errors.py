"""The root of the error tree. Branches stand in packages' `errors.py`, or beside what raises them.

DistTrainError
├── RetryableError    the same request may succeed later: a peer is away, a disk is full
└── FinalError        trying again changes nothing: a bad manifest, a wrong checkpoint
"""


class DistTrainError(Exception):
    """Anything that DistTrain raises on purpose; the message says the value seen and the remedy."""


class RetryableError(DistTrainError):
    """Trying the same again may succeed."""


class FinalError(DistTrainError):
    """Trying the same again cannot succeed; somebody has to change something first."""


class Interruption(Exception):
    """Ends what a process waits for, also within the user's code, since it is to end."""
