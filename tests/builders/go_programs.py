"""Programs in Go, other projects' and our own beside them: built once and kept in the cache.

The go.mod and go.sum of a folder of this repository say what exactly is built.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import yaml

from cluster import Kubectl, commands, layout
from cluster.lock import Lock

FLAGS: Final = ("-mod=readonly", "-trimpath", "-buildvcs=false")
"""The same for tests, so that they find compiled what the programs need."""
LIMIT: Final = timedelta(minutes=20)
"""A cold build takes minutes on 2 idle cores."""


@dataclass(frozen=True, slots=True)
class GoPrograms:
    """What is built in one folder."""

    source: Path
    packages: Mapping[str, str]
    """By the program's name."""

    def are_built(self) -> bool:
        """Whether `built` returns at once."""
        return self._folder().exists()

    def built(self) -> Path:
        """Return the folder with the programs, and build them if it is not there."""
        folder = self._folder()
        # What two processes want at once, the second one finds done.
        with Lock.acquire(LIMIT, layout.images_lock_file()):
            if not folder.exists():
                self._build(folder)
        return folder

    def run_own_tests(self) -> None:
        """Run the tests of the folder's own program; raise CommandFailed unless they pass."""
        self._go("test", *FLAGS, ".")

    def installation(self, kubectl: Kubectl, module: str, folder: str) -> list[dict[str, Any]]:
        """Return what a module's authors say is to be installed, in the pinned version."""
        version = self._go("list", "-m", "-f", "{{.Version}}", module).strip()
        told = json.loads(self._go("mod", "download", "-json", f"{module}@{version}"))
        printed = kubectl.run("kustomize", Path(told["Dir"]) / folder)
        return [found for found in yaml.safe_load_all(printed) if found]

    def _folder(self) -> Path:
        digest = hashlib.sha256(repr(sorted(self.packages.items())).encode())
        for file in sorted([*self.source.glob("*.go"), *self.source.glob("go.*")]):
            digest.update(file.read_bytes())
        return layout.cache() / f"{self.source.name}-{digest.hexdigest()[:16]}"

    def _build(self, folder: Path) -> None:
        # Beside its final place, so that a build that was cut short never counts as done.
        unfinished = folder.with_suffix(".building")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        for name, package in self.packages.items():
            self._go("build", *FLAGS, "-ldflags", "-s -w", "-o", unfinished / name, package)
        unfinished.replace(folder)

    def _go(self, *arguments: str | Path) -> str:
        # GOWORK: whatever workspace this machine has is not ours.
        variables = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
        command = ("nice", "-n", "10", "go", *arguments)
        return commands.run_patiently(
            *command, folder=self.source, environment=variables, limit=LIMIT
        )
