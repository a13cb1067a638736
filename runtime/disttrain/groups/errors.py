"""What can go wrong in a group.

DistTrainError
└── GroupLost    this incarnation of the group is over: the process ends, and a new one may form
"""

from disttrain.errors import DistTrainError


class GroupLost(DistTrainError):
    """A member has ended, or the members do not find each other any more."""
