"""What can go wrong between a member and the coordinator.

CoordinatorError
├── MessageRefused        a control payload is no valid message (final for that message)
├── MessageTooLong        a request of this process is longer than any that is taken (final)
├── NotJoined             the coordinator refused the join (final: the member ends)
│   └── JobOver           because nothing is left to do (the member ends in peace)
├── MemberFenced          this incarnation was declared dead (the process ends; a new one may join)
│   └── MemberRemoved     by the run's owner (final: no other one may)
├── CoordinatorSilent     no answer within the time allowed (worth trying again)
├── Superseded            another coordinator of the job has begun after this one, which ends
├── JournalDamaged        the journal or a ledger cannot be read (final)
├── WrongJournal          the journal is another job's (final)
└── ManifestChanged       a checkpoint cannot be gone on with by this manifest (final)
"""

from disttrain.errors import DistTrainError, FinalError, RetryableError


class CoordinatorError(DistTrainError):
    """Root of this package's errors."""


class MessageRefused(CoordinatorError, FinalError):
    """A control payload is no valid message."""


class MessageTooLong(CoordinatorError, FinalError):
    """A request is longer than any that the coordinator takes: repeating it changes nothing."""


class NotJoined(CoordinatorError, FinalError):
    """The coordinator refused the join."""


class JobOver(NotJoined):
    """The job had ended before this process joined."""


class MemberFenced(CoordinatorError):
    """The coordinator declared this incarnation dead; it must end without another push."""


class MemberRemoved(MemberFenced, FinalError):
    """The run's owner has taken this joiner away for good."""


class CoordinatorSilent(CoordinatorError, RetryableError):
    """No answer came within the time allowed."""


class Superseded(CoordinatorError):
    """There is a newer coordinator of this job: this one must decide and write nothing more."""


class JournalDamaged(CoordinatorError, FinalError):
    """The journal, or the ledger of a checkpoint, cannot be read."""


class WrongJournal(CoordinatorError, FinalError):
    """The journal in the checkpoint folder is another job's."""


class ManifestChanged(CoordinatorError, FinalError):
    """The job cannot go on from its checkpoint by a manifest that says otherwise."""
