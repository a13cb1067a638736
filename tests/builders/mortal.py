"""Commands that do not outlive the tests, not even tests that are killed."""

import signal
from collections.abc import Sequence
from pathlib import Path


def command(
    *arguments: str | Path, number: signal.Signals = signal.SIGKILL
) -> Sequence[str | Path]:
    """The same command, which gets a signal when the thread that started it is no more.

    The program is the very process that was started.
    """
    return ["setpriv", "--pdeathsig", number.name.removeprefix("SIG"), "--", *arguments]
