"""The files that the coordinator writes for people and tools: status, metrics, summary."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from disttrain.launch import atomic_file
from disttrain.launch.run_folder import RunFolder
from disttrain.telemetry import append_file


class RunFiles:
    """In the run folder. A full disk is no reason to stop: the next writing replaces this one."""

    def __init__(self, folder: Path) -> None:
        self._folder = RunFolder(folder)
        self._status = atomic_file.KeptFile(self._folder.status)

    def write_status(self, status: dict[str, Any]) -> None:
        """Replaces status.json: a reader sees it whole. A full disk takes it, too."""
        with suppress(OSError):
            self._status.replace(_text(status))

    def close(self) -> None:
        with suppress(OSError):
            self._status.close()

    def write_summary(self, summary: dict[str, Any]) -> None:
        with suppress(OSError):
            atomic_file.replace(self._folder.summary, _text(summary))

    def add_metrics(self, line: dict[str, Any]) -> None:
        file = self._folder.metrics
        # Path.open has no opener.
        with suppress(OSError), open(file, "a", opener=append_file.descriptor) as stream:
            stream.write(json.dumps(line) + "\n")


def _text(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=2).encode()
