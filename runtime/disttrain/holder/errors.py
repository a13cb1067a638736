"""What can go wrong as a holder takes its part of a checkpoint back.

DistTrainError
└── FinalError
    └── WrongSnapshot       a checkpoint does not fit the job: another update rule, other vectors
"""

from disttrain.errors import FinalError


class WrongSnapshot(FinalError):
    """Restored values do not fit what the job wants."""
