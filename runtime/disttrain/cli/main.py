"""Where the programs `disttrain` and `kubectl disttrain` begin.

What the commands are made of takes half a second to import. Until then this module is there
with the table of commands, which therefore import next to nothing.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from disttrain.cli import table
from disttrain.launch.exit_code import ExitCode


def main() -> int:
    """Run the command line; returns its exit code."""
    return _call("disttrain")


def plugin() -> int:
    """The same for kubectl, which finds `kubectl-disttrain` and calls it `kubectl disttrain`."""
    return _call("kubectl disttrain")


def complete_plugin() -> int:
    with _interrupts_end_at_once():
        complete: Callable[[Sequence[str]], int] = table.later("complete")
    return complete(sys.argv[1:])


def _call(name: str) -> int:
    _open_closed_streams()
    with _interrupts_end_at_once():
        call: Callable[[str], int] = table.later("call")
    return call(name)


def _open_closed_streams() -> None:
    """Started with `>&-`, a command would write into the first file that it opens."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # In this order each gets its own number: the lowest that is free.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


@contextmanager
def _interrupts_end_at_once() -> Iterator[None]:
    """Ctrl-C shows no traceback of an import; whoever started this process to ignore it may."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(_number: int, _frame: FrameType | None) -> None:
    # An exception could be caught, or reported, by the module that is being imported.
    os._exit(ExitCode.INTERRUPTED)
