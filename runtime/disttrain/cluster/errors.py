"""What can go wrong between a person and a cluster.

FinalError
├── ClusterError          the cluster says no; the message says who must do what
│   ├── LibraryMissing    the extra `cluster` is not installed
│   ├── NoAccess          no kubeconfig, no such context, credentials that do not work
│   ├── Forbidden         this user may not do this here
│   ├── NotInstalled      the cluster has no DistTrainJobs
│   ├── NotFound          there is no such object
│   ├── AlreadyThere      there is one of this name
│   ├── Conflict          somebody else changed it at the same time
│   ├── JobFailed         the job that was waited for has failed
│   └── WrongInput        the manifest, the code or the call is wrong; nothing was made
└── RetryableError
    ├── Unreachable       nobody answers, or not in time
    └── NotInTime         the job has not ended yet
"""

from disttrain.errors import FinalError, RetryableError


class ClusterError(FinalError):
    """The cluster says no."""


class LibraryMissing(ClusterError):
    """The extra `cluster` is not installed."""


class NoAccess(ClusterError):
    """There is no kubeconfig, no such context, or its credentials do not work."""


class Forbidden(ClusterError):
    """This user may not do this here."""


class NotInstalled(ClusterError):
    """The cluster has no DistTrainJobs."""


class NotFound(ClusterError):
    """There is no such object."""


class AlreadyThere(ClusterError):
    """There is an object of this name."""


class Conflict(ClusterError):
    """Somebody else changed the object at the same time."""


class JobFailed(ClusterError):
    """The job that was waited for has failed, or was deleted."""


class WrongInput(ClusterError):
    """The manifest, the code or the call is wrong; nothing was made."""


class Unreachable(RetryableError):
    """The API server does not answer."""


class NotInTime(RetryableError):
    """What was waited for has not happened yet."""
