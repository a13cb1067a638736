"""What can go wrong when a run is replayed.

DistTrainError
└── FinalError
    ├── NotReplayable       the run was not recorded, or did something that a replay does not follow
    └── RecordContradicted  the replay came to something that the record says did not happen
"""

from disttrain.errors import FinalError


class NotReplayable(FinalError):
    """The run cannot be repeated from what it logged."""


class RecordContradicted(FinalError):
    """What the replay does and what the record says do not fit: another task, data or version."""
