"""What can go wrong when a run is audited.

DistTrainError
└── FinalError
    └── NothingToAudit      the folder is no output folder of a run, or of one with spec.audit: off
"""

from disttrain.errors import FinalError


class NothingToAudit(FinalError):
    """The folder holds no run."""
