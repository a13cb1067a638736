"""Whole jobs that a benchmark runs by the command, and what they leave to be read."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple


class MeasuredJob(NamedTuple):
    """One `disttrain run` that has ended well."""

    lines: list[dict[str, Any]]
    """Of its metrics.jsonl."""
    summary: dict[str, Any]
    began: float
    """When the command was started, in seconds since 1970."""
    seconds: float
    """Of the whole command."""

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        found = [line for line in self.lines if "evaluation" in line]
        return [line for line in found if not line["evaluation"]["final"]]


def run(manifest: str, sources: Iterable[Path], fields: Mapping[str, Any]) -> MeasuredJob:
    """Run a job beside the files of its task; `fields` of its spec are set by `--set`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.yaml").write_text(manifest)
        for source in sources:
            (folder / source.name).symlink_to(source)
        output = folder / "output"
        command = [sys.executable, "-m", "disttrain", "run", str(folder / "job.yaml")]
        command += ["--output", str(output)]
        for key, value in fields.items():
            command += ["--set", f"spec.{key}={json.dumps(value)}"]
        began = time.time()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = time.time() - began
        lines = [json.loads(x) for x in (output / "metrics.jsonl").read_text().splitlines()]
        summary = json.loads((output / "summary.json").read_text())
    return MeasuredJob(lines, summary, began, seconds)
