"""What a process in a pod leaves about its end: the termination message of its container."""

import json
from pathlib import Path
from typing import Any

from disttrain.launch.exit_code import ExitCode
from disttrain.launch.outcome import RESULTS, Result
from disttrain.launch.run_folder import RunFolder
from disttrain.telemetry import logs

LOG = logs.get(__name__)

MOST_BYTES = 4096
"""Kubernetes keeps no more."""

_GAP = "\n...\n"
_STOPPED = {"reason": Result.STOPPED, "message": "told to end; the job goes on later"}


def outcome(code: ExitCode, summary: dict[str, Any]) -> bytes:
    """How the job ended, from the coordinator's exit code and summary.json. Pure.

    A JSON object with phase, reason, message, samples and measures.
    """
    if code == ExitCode.INTERRUPTED and summary.get("phase") != Result.STOPPED:
        summary = _STOPPED
    found = {
        "phase": RESULTS[code],
        "reason": summary.get("reason") or "",
        "message": summary.get("message") or "",
        "samples": summary.get("samples", 0),
        "measures": summary.get("finalMeasures") or summary.get("latestMeasures") or {},
    }
    return _fitting(found)


def failed(kind: str, message: str) -> bytes:
    """The outcome of a job whose coordinator met an error that no restart heals. Pure."""
    found = {"phase": Result.FAILED, "reason": kind, "message": message}
    return _fitting({**found, "samples": 0, "measures": {}})


def text(message: str) -> bytes:
    """A message for people, in the bytes that are kept: its beginning and its end. Pure."""
    return _shortened(message, MOST_BYTES).encode()


def read_summary(folder: RunFolder) -> dict[str, Any]:
    """What summary.json says; empty without one."""
    try:
        found = json.loads(folder.summary.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write(path: Path, content: bytes) -> None:
    """Write the message; outside of a pod there may be no place for one."""
    try:
        path.write_bytes(content)
    except OSError as error:
        LOG.warning("no termination message", file=path, reason=error)


def _fitting(found: dict[str, Any]) -> bytes:
    content = json.dumps(found).encode()
    room = MOST_BYTES
    while len(content) > MOST_BYTES and room:
        room //= 2
        message = _shortened(found["message"], room)
        measures = found.get("measures", {}) if room else {}
        content = json.dumps(found | {"message": message, "measures": measures}).encode()
    return content


def _shortened(message: str, most_bytes: int) -> str:
    content = message.encode()
    if len(content) <= most_bytes:
        return message
    room = max(0, most_bytes - len(_GAP))
    # What went wrong stands last in a traceback.
    head, tail = content[: room // 3], content[len(content) - (room - room // 3) :]
    return head.decode(errors="ignore") + _GAP + tail.decode(errors="ignore")
