"""The files that the coordinator writes for people and tools: status, metrics, summary."""

import json
import os
from pathlib import Path
from typing import Any


class RunFiles:
    """In the run folder. A full disk is no reason to stop: the next writing replaces this one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write_status(self, status: dict[str, Any]) -> None:
        """Replaces status.json: a reader sees it whole."""
        self._replace("status.json", status)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Replaces summary.json."""
        self._replace("summary.json", summary)

    def add_metrics(self, line: dict[str, Any]) -> None:
        """Appends to metrics.jsonl."""
        try:
            with (self._folder / "metrics.jsonl").open("a") as stream:
                stream.write(json.dumps(line) + "\n")
        except OSError:
            return

    def _replace(self, name: str, content: dict[str, Any]) -> None:
        temporary = self._folder / f".{name}.{os.getpid()}"
        try:
            temporary.write_text(json.dumps(content, indent=2))
            temporary.replace(self._folder / name)
        except OSError:
            temporary.unlink(missing_ok=True)
