"""Why there is no cluster, or why something did not happen in it.

ClusterError
├── Unavailable      this machine cannot run a cluster, or may not now: tests skip, or wait
├── CommandFailed    a program that ends by itself ended badly, or not in time
├── ComponentDied    a program that must go on running did not
└── NotInTime        a condition did not come true
"""


class ClusterError(Exception):
    """Anything that went wrong around the test cluster."""


class Unavailable(ClusterError):
    """No cluster can be had here; the message is the reason to give for a skipped test."""


class CommandFailed(ClusterError):
    """A program ended with an error or ran out of time; the message holds what it printed."""


class ComponentDied(ClusterError):
    """A component of the cluster ended by itself; the message holds the end of its log."""


class NotInTime(ClusterError):
    """A condition that was waited for did not come true."""
