"""Ctrl-C while a command is still being imported: it ends at once, and without a traceback.

Nothing of a job has begun then: there is nothing for `disttrain audit`.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from builders.jobs import SMALL
from builders.launches import wait_until

SCRIPTS = Path(sys.executable).parent
COMMANDS = {
    "script": [str(SCRIPTS / "disttrain"), "run", "job.yaml"],
    "module": [sys.executable, "-m", "disttrain", "run", "job.yaml"],
    "plugin": [str(SCRIPTS / "kubectl-disttrain"), "list"],
    "completion": [str(SCRIPTS / "kubectl_complete-disttrain"), "l"],
}

HANGS = """
import pathlib
pathlib.Path("importing").touch()
while True:
    pass
"""
"""Between two bytecodes a signal is always heard: one just before a call that blocks, after it."""


IS_INTERRUPTED_FIRST = """
import signal
signal.raise_signal(signal.SIGINT)
"""


def started(folder: Path, command: list[str], module: str = HANGS) -> "subprocess.Popen[str]":
    """The command, in the midst of importing a module that hangs."""
    (folder / "job.yaml").write_text(SMALL)
    (folder / "typer.py").write_text(module)
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until((folder / "importing").exists, "it imports")
    return process


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_an_interrupt_during_the_imports_ends_without_a_traceback(
    tmp_path: Path, command: list[str]
) -> None:
    process = started(tmp_path, command)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)
    assert (process.returncode, *said) == (130, "", "")


def test_who_ignores_interrupts_does_so_during_the_imports(tmp_path: Path) -> None:
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *COMMANDS["module"]]
    process = started(tmp_path, ignoring, IS_INTERRUPTED_FIRST + HANGS)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
