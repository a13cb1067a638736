"""A person at a shell with a kubeconfig: `disttrain` and `kubectl disttrain`, as they are typed."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from builders import commands, mortal, product_images
from builders.commands import TIMEOUT_SECONDS, Answer
from cluster import Kubectl, binaries


@dataclass(frozen=True, slots=True)
class Person:
    """Types commands in the folder of the repository."""

    kubectl: Kubectl
    kubeconfig: Path | None = None
    """Another than that of kubectl."""
    variables: dict[str, str] = field(default_factory=dict)

    def types(
        self, line: str, *, stdin: str | None = None, seconds: float = TIMEOUT_SECONDS
    ) -> Answer:
        """Type `disttrain ...` and wait for its end."""
        command, environment = self._command(line), self.environment()
        folder = product_images.REPOSITORY
        return commands.run(command, folder, environment=environment, stdin=stdin, seconds=seconds)

    @contextmanager
    def starts(self, line: str, out: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Type a command that goes on, at most until the context ends; its words lie in a file."""
        with out.open("wb") as file:
            process = subprocess.Popen(
                mortal.command(*self._command(line)),
                env=self.environment(),
                cwd=product_images.REPOSITORY,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def environment(self) -> dict[str, str]:
        """The variables of the shell; kubectl finds its plugins in PATH."""
        scripts = Path(sys.executable).parent
        return {
            **os.environ,
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": str(self.kubeconfig or self.kubectl.kubeconfig),
            **self.variables,
        }

    def _command(self, line: str) -> list[str | Path]:
        program, command, *words = shlex.split(line)
        where = f"--namespace={self.kubectl.namespace}"
        if program == "kubectl":
            plugin, command = command, words.pop(0)
            return [*binaries.kubernetes("kubectl"), plugin, command, where, *words]
        # The code that is tested, wherever its script was installed from.
        return [sys.executable, "-m", program, command, where, *words]
