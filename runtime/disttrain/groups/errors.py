"""What can go wrong in a group.

DistTrainError
├── GroupLost       this incarnation of the group is over: the process ends, and a new one may form
│   └── FormsAnew   by no failure of a member
└── NotConnected    its members are all there and do not reach each other: the process has failed
"""

from disttrain.errors import DistTrainError


class GroupLost(DistTrainError):
    """A member has ended, or the members do not find each other any more."""


class FormsAnew(GroupLost):
    """The coordinator was started again while the group formed, and has lost what it was given."""


class NotConnected(DistTrainError):
    """Nobody has ended, as far as is known, and yet the members of a group do not connect.

    Unlike a process whose group is lost, one that meets this counts as failed: nobody else does.
    """
