"""What tests do to a cluster that its API cannot: give it an image, and kill a container.

Whoever brings a cluster says how, in two commands; `OURS` are those of the one in here.
"""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from cluster import commands
from cluster.errors import Unavailable

LOAD: Final = "DISTTRAIN_LOAD_IMAGE"
"""The variable with the command that gets a Docker archive and the name of the image in it."""
KILL: Final = "DISTTRAIN_KILL_CONTAINER"
"""The variable with the command that gets a namespace, a pod and a container of it."""
LOAD_LIMIT: Final = timedelta(minutes=10)
_PROGRAM: Final = (
    "env",
    f"PYTHONPATH={Path(__file__).parents[1]}",
    sys.executable,
    "-m",
    "cluster",
)
OURS: Final = {LOAD: (*_PROGRAM, "load"), KILL: (*_PROGRAM, "kill")}


@dataclass(frozen=True, slots=True)
class Hooks:
    """The two commands, as words."""

    words: Mapping[str, Sequence[str]]

    def variables(self) -> dict[str, str]:
        """Return what `given` reads in the environment."""
        return {name: shlex.join(words) for name, words in self.words.items()}

    def load(self, archive: Path, name: str) -> None:
        """Give every node the image."""
        commands.run(*self.words[LOAD], archive, name, limit=LOAD_LIMIT)

    def kill(self, namespace: str, pod: str, container: str) -> None:
        """Send SIGKILL to the container's first process."""
        commands.run(*self.words[KILL], namespace, pod, container)


def given() -> Hooks:
    """Return those that the environment names; raise Unavailable if one is missing."""
    missing = [name for name in (LOAD, KILL) if not os.environ.get(name)]
    if missing:
        message = f"not set: {', '.join(missing)}; CONTRIBUTING.md says what these commands do"
        raise Unavailable(message)
    return Hooks({name: shlex.split(os.environ[name]) for name in (LOAD, KILL)})
