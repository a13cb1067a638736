"""Runs code of the user, and shows its errors as the user wants to see them: their own frames.

Example: `with user_code.running("Digits.model()"): model = task.model()`.
"""

import signal
import sysconfig
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import StackSummary, TracebackException, extract_stack
from types import FrameType
from typing import NamedTuple

from disttrain.errors import DistTrainError, Interruption
from disttrain.job import terminal_text
from disttrain.task.errors import UserCodeError

What = str | Callable[[], str]
"""Names a call: "Digits.loss()"; a function where the name is costly and rarely wanted."""


class Call(NamedTuple):
    """One that has not returned."""

    what: What
    thread: int
    since: float
    """As `time.monotonic` says."""

    @property
    def name(self) -> str:
        return name_of(self.what)


_running: dict[int, Call] = {}
"""By thread: the innermost call."""


def name_of(what: What) -> str:
    return what if isinstance(what, str) else what()


@contextmanager
def noted(what: What) -> Iterator[None]:
    thread = threading.get_ident()
    outer = _running.get(thread)
    _running[thread] = Call(what, thread, time.monotonic())
    try:
        yield
    finally:
        if outer is None:
            del _running[thread]
        else:
            _running[thread] = outer


def calls_under_way() -> tuple[Call, ...]:
    """The calls that have not returned; any thread."""
    return tuple(_running.copy().values())


def overdue(calls: Iterable[Call], now: float, limit_seconds: float) -> Call | None:
    oldest = min(calls, key=lambda call: call.since, default=None)
    if oldest is None or now - oldest.since <= limit_seconds:
        return None
    return oldest


_NOT_OF_THE_USER = tuple(
    f"{Path(folder).resolve()}/"
    for folder in (
        Path(__file__).parents[1],
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("platstdlib"),
    )
)
"""Folders of our code and the standard library."""

_PACKAGE_FOLDERS = {"site-packages", "dist-packages"}
"""Names of the folders that packages are installed in, wherever these lie."""


@contextmanager
def running(what: What) -> Iterator[None]:
    """Turn whatever the user's code raises inside, its exit too, into a `UserCodeError`.

    What is ours passes as it is, and so does a person's Ctrl-C where that raises an exception.
    `what` names the code, "Digits.loss()", also among `calls_under_way` until the end of the block.
    """
    try:
        with noted(what):
            yield
    except (DistTrainError, Interruption):
        raise
    # A script's exit would look like an orderly end, other exceptions that are no Exception like a
    # mistake of ours, after which the process starts again and meets them again.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and _ctrl_c_raises():
            raise
        name = name_of(what)
        message = f"{name} raised {type(error).__name__}:\n{shortened(error)}"
        raise UserCodeError(message) from error


def _ctrl_c_raises() -> bool:
    """Not in the processes of a job: there a KeyboardInterrupt is the task's own."""
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def shortened(error: BaseException) -> str:
    """Return the traceback without the frames of DistTrain, the standard library and packages.

    If none is the user's, the last one stays: better a strange place than none. What cannot be
    printed is escaped.
    """
    described = TracebackException.from_exception(error, compact=True)
    _shorten(described)
    text = "".join(described.format()).rstrip()
    return "\n".join(map(terminal_text.escaped, text.split("\n")))


def place_of(frame: FrameType) -> str:
    """Say in one line where the user's code is, the innermost frame first."""
    stack = extract_stack(frame)
    frames = [one for one in stack if is_of_the_user(one.filename)] or stack[-1:]
    return " < ".join(f"{one.filename}:{one.lineno} in {one.name}" for one in reversed(frames))


def _shorten(described: TracebackException) -> None:
    frames = [frame for frame in described.stack if is_of_the_user(frame.filename)]
    described.stack = StackSummary.from_list(frames or described.stack[-1:])
    linked = [described.__cause__, described.__context__, *(described.exceptions or ())]
    for other in linked:
        if other is not None:
            _shorten(other)


def is_of_the_user(file: str) -> bool:
    if file.startswith("<"):
        return False
    path = Path(file).resolve()
    installed = not _PACKAGE_FOLDERS.isdisjoint(path.parts)
    return not installed and not str(path).startswith(_NOT_OF_THE_USER)
