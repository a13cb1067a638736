"""What can go wrong between a member and the coordinator.

CoordinatorError
├── MessageRefused        a control payload is no valid message; final for that message
├── NotJoined             the coordinator refused the join; final, the member ends
├── MemberFenced          the coordinator declared this life dead; final, the member ends
├── CoordinatorSilent     no answer within the time allowed; worth trying again
└── JournalDamaged        the journal is damaged before its end; final
"""

from disttrain.errors import DistTrainError


class CoordinatorError(DistTrainError):
    """Root of this package's errors."""


class MessageRefused(CoordinatorError):
    """A control payload is no valid message."""


class NotJoined(CoordinatorError):
    """The coordinator refused the join."""


class MemberFenced(CoordinatorError):
    """The coordinator declared this life of the member dead; it must end without another push."""


class CoordinatorSilent(CoordinatorError):
    """No answer came within the time allowed."""


class JournalDamaged(CoordinatorError):
    """The journal is damaged before its end."""
