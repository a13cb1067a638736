"""Writers of checkpoints that die or run out of room; a program, so that it may fork and kill.

`checkpoint_writer.py FOLDER`: commits checkpoint 1, then begins checkpoint 2 again and again, each
time in a child that is killed one step later: before and after each system call that changes the
disk. Prints one line of JSON per child: the call, and what is found afterwards.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from builders.checkpoints import a_checkpoint, a_layout, stage
from disttrain.checkpoint import store
from disttrain.checkpoint.store import Store

CALLS = ("open", "write", "fsync", "rename", "mkdir", "close")
KEEP = 1


def main(folder: Path) -> None:
    """Kill one child after another until one survives."""
    a_checkpoint(folder, number=1)
    step = 0
    while True:
        child = os.fork()
        if child == 0:
            _write_until(step, folder)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        found = _found(folder)
        sys.stdout.write(json.dumps({"step": step, "status": status, **found}) + "\n")
        if status == 0:
            return
        if found["latest"] == 2:
            _start_over(folder)
        step += 1


def _write_until(step: int, folder: Path) -> None:
    steps = iter(range(10**6))

    def dying() -> None:
        if next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in CALLS:
        setattr(os, name, _watched(getattr(os, name), dying))
    kept = Store(folder)
    kept.commit(stage(kept.begin(2), a_layout(), 2))
    kept.retain(KEEP)


def _watched(call: Callable[..., Any], dying: Callable[[], None]) -> Callable[..., Any]:
    def watched(*arguments: Any, **options: Any) -> Any:
        dying()
        result = call(*arguments, **options)
        dying()
        return result

    return watched


def _found(folder: Path) -> dict[str, Any]:
    """The newest checkpoint, verified, and the names of all that look complete."""
    latest = Store(folder).latest()
    assert latest is not None
    whole = store.verify(latest.path)
    complete = sorted(path.name for path in folder.iterdir() if path.name.isdigit())
    return {"latest": whole.manifest.number, "complete": complete}


def _start_over(folder: Path) -> None:
    for checkpoint in Store(folder).list():
        for file in checkpoint.path.iterdir():
            file.unlink()
        checkpoint.path.rmdir()
    a_checkpoint(folder, number=1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
