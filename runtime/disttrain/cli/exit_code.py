"""What the exit codes of the commands mean."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command."""

    SUCCESS = 0
    """The job is complete, the file is good, the question is answered."""
    FAILED = 1
    """The job failed, or something else went wrong."""
    BAD_MANIFEST = 2
    """The manifest or the command line is wrong; nothing was started."""
    INTERRUPTED = 130
    """Ctrl-C."""
