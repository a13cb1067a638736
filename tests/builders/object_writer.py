"""Writers into an object store that die; a program, so that it may fork and kill.

`object_writer.py FOLDER`: commits checkpoint 1, then begins checkpoint 2 again and again, each time
in a child that is killed one step later: before and after each request. Prints one line of JSON per
child: what is found afterwards, all of it hashed.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from builders.object_stores import a_checkpoint
from disttrain.checkpoint import names, objects, reading, stores
from disttrain.job.location import Location

KEEP = 1


def main(folder: Path) -> None:
    """Kill one child after another until one survives."""
    at = Location(folder / "copies", f"local://{folder}/store")
    a_checkpoint(at, 1)
    step = 0
    while True:
        child = os.fork()
        if child == 0:
            _write_until(step, at)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        found = _found(at)
        sys.stdout.write(json.dumps({"step": step, "status": status, **found}) + "\n")
        if status == 0:
            return
        # What one has uploaded the next would find, and make other requests.
        shutil.rmtree(folder / "store")
        a_checkpoint(at, 1)
        step += 1


def _write_until(step: int, at: Location) -> None:
    steps = iter(range(10**6))
    ask = objects._within

    def dying(seconds: float, call: Callable[[], Any]) -> Any:
        _die(next(steps) == step)
        answer = ask(seconds, call)
        _die(next(steps) == step)
        return answer

    objects._within = dying
    a_checkpoint(at, 2, shards=1)
    stores.open_store(at).retain(KEEP)


def _die(now: bool) -> None:  # noqa: FBT001 - Said by the caller's line.
    if now:
        os.kill(os.getpid(), signal.SIGKILL)


def _found(at: Location) -> dict[str, Any]:
    """The newest checkpoint, verified, and how many objects no checkpoint needs."""
    store = stores.open_store(at)
    latest = store.latest()
    assert latest is not None
    store.drop_copies()
    store.bring(latest)
    whole = reading.verified(latest.path).manifest
    there = objects.open_objects(at.uri).sizes(names.DATA)
    named = {names.data(entry) for one in store.list() for entry in one.manifest.files}
    return {
        "latest": whole.number,
        "complete": [one.manifest.number for one in store.list()],
        "left_over": len(there.keys() - named),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
