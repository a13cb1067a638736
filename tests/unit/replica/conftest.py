import sys
import threading
import traceback
from collections.abc import Generator, Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Several threads wait for one another on a busy machine, far longer than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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
