"""Standard output and error that cannot be written: full disks, closed pipes, closed terminals."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast


@contextmanager
def kept(lost: Callable[[OSError], None]) -> Iterator[None]:
    """For work that is worth more than what is shown of it: writing never fails in this block.

    Of a stream that cannot be written nothing is shown any more. `lost` is told the reason, once,
    if it is standard output; it may write to both.
    """
    with (
        redirect_stdout(cast(TextIO, _Lasting(sys.stdout, lost))),
        redirect_stderr(cast(TextIO, _Lasting(sys.stderr, lambda _error: None))),
    ):
        yield


class _Lasting:
    """As much of a stream as writing and asking for its kind need."""

    def __init__(self, stream: TextIO, lost: Callable[[OSError], None]) -> None:
        self._stream = stream
        self._lost = lost

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError as error:
            self._lose(error)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._lose(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _lose(self, error: OSError) -> None:
        # What the stream holds back would fail at the exit: it goes nowhere, too.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)
        self._lost(error)
