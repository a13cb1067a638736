"""What the terminal says of a process that crashed."""

import pytest

from disttrain.launcher.launcher import last_words

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
