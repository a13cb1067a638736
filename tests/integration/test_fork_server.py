"""A fork server and its host by themselves: no job runs that `disttrain audit` could look at."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.launches import STAND_INS, TESTS, wait_until
from disttrain.launcher.fork_messages import Preload, Preloaded
from disttrain.launcher.hosts import ForkHost

COMMANDS = 1000
"""More than a socket holds."""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkHost]:
    monkeypatch.setenv("DISTTRAIN_SERVERS", STAND_INS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), *sys.path]))
    server = ForkHost(tmp_path / "log")
    yield server
    server.close()


def test_libraries_are_imported_before_the_users_module(host: ForkHost, tmp_path: Path) -> None:
    (tmp_path / "users.py").write_text("import sys\nassert 'colorsys' in sys.modules\n")
    (tmp_path / "broken.py").write_text("raise OSError('no such driver')\n")
    for libraries in ((), ("no_such_library", "broken", "colorsys")):
        host.preload(Preload(libraries=libraries, module="users", folder=str(tmp_path)))
    assert [each.error for each in answers_of(host, 2)] == ["AssertionError", ""]


def test_what_a_busy_fork_server_is_told_is_not_lost(host: ForkHost, tmp_path: Path) -> None:
    os.kill(host.pid, signal.SIGSTOP)
    for _ in range(COMMANDS):
        host.preload(Preload(module="math", folder=str(tmp_path)))
    os.kill(host.pid, signal.SIGCONT)
    answers_of(host, COMMANDS)


def answers_of(host: ForkHost, commands: int) -> list[Preloaded]:
    answers: list[Preloaded] = []

    def answered() -> bool:
        answers.extend(event for event in host.events() if isinstance(event, Preloaded))
        return len(answers) == commands

    wait_until(answered, "every command is answered")
    return answers
