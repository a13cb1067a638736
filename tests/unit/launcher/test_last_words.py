"""What the terminal says of a process that crashed, or left too early."""

import pytest

from disttrain.launcher.launcher import early_end, last_words
from disttrain.launcher.restart_policy import Exit
from disttrain.launcher.supervision import Process

TAIL = """\
2026-11-22T12:27:31.228Z error coordinator ends: an error that nobody expected
Traceback (most recent call last):
FileNotFoundError: [Errno 2] No such file or directory: '/proc/none'
"""


@pytest.mark.parametrize(
    ("code", "tail", "words"),
    [
        (70, TAIL, " (FileNotFoundError: [Errno 2] No such file or directory: '/proc/none')"),
        (70, 1000 * "x", f" ({300 * 'x'})"),
        (70, "", ""),
        (-9, TAIL, ""),
        (1, TAIL, ""),
    ],
)
def test_a_crash_names_its_exception(code: int, tail: str, words: str) -> None:
    assert last_words(code, tail) == words


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "replica-0: exit code 0 before the job's end; starts again now"),
        (-15, "replica-0: killed by SIGTERM before the job's end; starts again now"),
        (70, None),
        (-9, None),
    ],
)
def test_an_end_on_purpose_is_news_when_the_job_goes_on(code: int, words: str | None) -> None:
    process = Process("replica-0", restarts=1, last_exit=Exit(code))
    assert early_end(process) == words


def test_a_first_start_is_no_news() -> None:
    assert early_end(Process("replica-0")) is None
