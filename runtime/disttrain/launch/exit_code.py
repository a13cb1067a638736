"""What the exit code of a process means; those above 127 are of signals."""

from enum import IntEnum

from disttrain.job import pod_layout


class ExitCode(IntEnum):
    """Exit codes of the processes of a job and of all commands."""

    COMPLETE = 0
    """The job is complete, the file is good, the question is answered; of a member: told to end."""
    FAILED = 1
    """The job failed, by decision: its summary says why. Of a command: what it says."""
    USAGE = 2
    """A bad manifest or command line; nothing was started."""
    FINAL_ERROR = 3
    """A member met an error that a restart cannot heal; the message lies in its failure file."""
    CRASHED = 70
    """An error that nobody expected; the traceback is in the log."""
    RESTART = pod_layout.RESTART_CODE
    """A member ends so that a new incarnation of it begins: it was declared dead, or lost its
    way."""
    SUPERSEDED = 76
    """A coordinator ends, since the job has a newer one."""
    INTERRUPTED = 130
    """Ctrl-C or SIGTERM."""
