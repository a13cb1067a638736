"""Writers of checkpoints that die or run out of room; a program, so that it may fork and kill.

`checkpoint_writer.py FOLDER KIND`: commits checkpoint 1, then begins checkpoint 2 again and again,
each time in a child that is killed one step later: before and after each system call that changes
the disk. Prints one line of JSON per child: the call, and what is found afterwards. Of the kind
`history`, the second has a vector that the first has, too, and one of its own.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from builders import batch_shards
from builders.checkpoints import a_checkpoint, a_layout, stage
from disttrain.checkpoint import stores

CALLS = ("open", "write", "fsync", "link", "rename", "mkdir", "close")
KEEP = 1


class Plain:
    """Checkpoints of two shards of Downpour."""

    def first(self, folder: Path) -> None:
        """Commit checkpoint 1."""
        a_checkpoint(folder, number=1)

    def second(self, folder: Path) -> None:
        """Commit checkpoint 2."""
        kept = stores.in_folder(folder)
        kept.commit(stage(kept.begin(2), a_layout(), 2))


class History:
    """Checkpoints of a shard of a batch method."""

    def first(self, folder: Path) -> None:
        """See `Plain`."""
        self._shard = batch_shards.a_shard()
        batch_shards.one_iteration([self._shard])
        batch_shards.commit(folder, [self._shard], number=1)
        batch_shards.next_pair(self._shard, order=4)

    def second(self, folder: Path) -> None:
        """See `Plain`."""
        batch_shards.commit(folder, [self._shard], number=2)


Kind: TypeAlias = Plain | History
KINDS: dict[str, type[Kind]] = {"plain": Plain, "history": History}


def main(folder: Path, kind: Kind) -> None:
    """Kill one child after another until one survives."""
    kind.first(folder)
    step = 0
    while True:
        child = os.fork()
        if child == 0:
            _write_until(step, folder, kind)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        found = _found(folder)
        sys.stdout.write(json.dumps({"step": step, "status": status, **found}) + "\n")
        if status == 0:
            return
        if found["latest"] == 2:
            _start_over(folder, kind)
        step += 1


def _write_until(step: int, folder: Path, kind: Kind) -> None:
    steps = iter(range(10**6))

    def dying() -> None:
        if next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in CALLS:
        setattr(os, name, _watched(getattr(os, name), dying))
    kind.second(folder)
    stores.in_folder(folder).retain(KEEP)


def _watched(call: Callable[..., Any], dying: Callable[[], None]) -> Callable[..., Any]:
    def watched(*arguments: Any, **options: Any) -> Any:
        dying()
        result = call(*arguments, **options)
        dying()
        return result

    return watched


def _found(folder: Path) -> dict[str, Any]:
    """The newest checkpoint, verified, and the names of all that look complete."""
    latest = stores.in_folder(folder).latest()
    assert latest is not None
    whole = stores.verify(latest.path)
    complete = sorted(path.name for path in folder.iterdir() if path.name.isdigit())
    return {"latest": whole.manifest.number, "complete": complete}


def _start_over(folder: Path, kind: Kind) -> None:
    for checkpoint in stores.in_folder(folder).list():
        for file in checkpoint.path.iterdir():
            file.unlink()
        checkpoint.path.rmdir()
    kind.first(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), KINDS[sys.argv[2]]())
