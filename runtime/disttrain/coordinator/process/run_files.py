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

    def write_status(self, status: dict[str, Any]) -> None:
        """Replaces status.json: a reader sees it whole."""
        _replace(self._folder.status, status)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Replaces summary.json."""
        _replace(self._folder.summary, summary)

    def add_metrics(self, line: dict[str, Any]) -> None:
        """Appends to metrics.jsonl."""
        file = self._folder.metrics
        # Path.open has no opener.
        with suppress(OSError), open(file, "a", opener=append_file.descriptor) as stream:
            stream.write(json.dumps(line) + "\n")


def _replace(path: Path, content: dict[str, Any]) -> None:
    with suppress(OSError):
        atomic_file.replace(path, json.dumps(content, indent=2).encode())
