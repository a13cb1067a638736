import sys
import threading
import traceback
from collections.abc import Generator, Iterator

import pytest


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """Several threads wait for one another on a busy machine, far longer than they compute."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say of a failed test what its threads do: the one that hangs is none that pytest shows."""
    report = yield
    if report.failed:
        report.sections.append(("threads", "\n".join(_threads())))
    return report


def _threads() -> Iterator[str]:
    frames = sys._current_frames()
    for thread in threading.enumerate():
        if thread.ident in frames:
            yield f"{thread.name}:\n{''.join(traceback.format_stack(frames[thread.ident]))}"
