"""The end of a process that has imported torch."""

import atexit
import os
import sys
from typing import NoReturn


def end(code: int) -> NoReturn:
    """End this process as a program ends, but for what it imported.

    The interpreter's own end tears down torch and takes long, and is a place to crash in.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing does
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
