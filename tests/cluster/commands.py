"""Run a program to its end: always with a limit, and with what it printed in the error."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from cluster.errors import CommandFailed, NotInTime

LIMIT = timedelta(minutes=4)
"""Whoever takes longer hangs, also on cores that others have."""
ATTEMPTS = 3
PAUSE_SECONDS = 5
PRINTED_CHARACTERS = 4000
"""How much of what a failed command printed is worth showing: its end."""


def run(
    *arguments: str | Path,
    limit: timedelta = LIMIT,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> str:
    """Return what the command printed on stdout; variables are added to ours.

    Raises CommandFailed with the command, its exit code and the end of its output.
    """
    command = [str(argument) for argument in arguments]
    try:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit.total_seconds(),
            env={**os.environ, **(environment or {})},
            cwd=folder,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        message = f"{_shown(command)} did not end within {limit.total_seconds():g} s"
        raise CommandFailed(message) from expired
    except OSError as error:
        message = f"{_shown(command)} could not be started: {error}"
        raise CommandFailed(message) from error

    if done.returncode != 0:
        printed = (done.stdout + done.stderr)[-PRINTED_CHARACTERS:]
        message = f"{_shown(command)} ended with code {done.returncode}:\n{printed}"
        raise CommandFailed(message)
    return done.stdout


def run_patiently(
    *arguments: str | Path,
    limit: timedelta,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> str:
    """Do the same in up to three attempts: for what comes over a network, where failures pass."""
    for _ in range(ATTEMPTS - 1):
        try:
            return run(*arguments, limit=limit, environment=environment, folder=folder)
        except CommandFailed as error:
            sys.stderr.write(f"once more, after {PAUSE_SECONDS} s: {error}\n")
            time.sleep(PAUSE_SECONDS)
    return run(*arguments, limit=limit, environment=environment, folder=folder)


def run_again(
    *arguments: str | Path, again: Collection[str], limit: timedelta, stdin: str | None = None
) -> str:
    """Do the same, and anew until the limit while it fails with any of the words in `again`."""
    deadline = time.monotonic() + limit.total_seconds()
    while True:
        try:
            return run(*arguments, stdin=stdin, limit=limit)
        except CommandFailed as error:
            passes = any(words in str(error) for words in again)
            if not passes or time.monotonic() > deadline:
                raise


def succeeds(*arguments: str | Path, limit: timedelta = LIMIT) -> bool:
    """Tell whether the command ended with success; what it printed is dropped."""
    try:
        run(*arguments, limit=limit)
    except CommandFailed:
        return False
    return True


def wait_until(
    condition: Callable[[], bool],
    what: str,
    *,
    limit: timedelta = LIMIT,
    pause: timedelta = timedelta(milliseconds=100),
) -> None:
    """Return once the condition holds; raise NotInTime, naming what was awaited, otherwise."""
    deadline = time.monotonic() + limit.total_seconds()
    while not condition():
        if time.monotonic() > deadline:
            message = f"waited {limit.total_seconds():g} s in vain: {what}"
            raise NotInTime(message)
        time.sleep(pause.total_seconds())


def _shown(command: Sequence[str]) -> str:
    line = " ".join(command)
    return line if len(line) <= 300 else f"{line[:300]} ..."
