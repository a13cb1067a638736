"""Writers of checkpoints that die; a program, so that it may fork and kill.

`dying_writers.py FOLDER KIND`: commits checkpoint 1, then begins checkpoint 2 again and again, each
time in a child that is killed one step later: before and after each system call that changes the
disk, or each request to an object store. Prints one line of JSON per child: what is found
afterwards, all of it hashed.
"""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from builders import batch_shards, object_stores
from builders.checkpoints import a_checkpoint, a_layout, stage
from disttrain.checkpoint import objects, stores
from disttrain.checkpoint.stores import Store
from disttrain.job.location import Location

CALLS = ("open", "write", "fsync", "link", "rename", "mkdir", "close")
KEEP = 1


class Plain:
    """Checkpoints of two shards of Downpour in a folder."""

    steps: tuple[tuple[Any, str], ...] = tuple((os, name) for name in CALLS)
    """Functions before and after which a writer may die, and where they are looked up."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def store(self) -> Store:
        return stores.in_folder(self.folder)

    def first(self) -> None:
        a_checkpoint(self.folder, number=1)

    def second(self) -> None:
        self.store().commit(stage(self.store().begin(2), a_layout(), 2))

    def start_over(self, latest: int) -> None:
        """Have only checkpoint 1 again; what a killed one has staged stays."""
        if latest == 2:
            for checkpoint in self.store().list():
                shutil.rmtree(checkpoint.path)
            self.first()


class History(Plain):
    """Of a shard of a batch method: the second has a vector of the first, and one of its own."""

    def first(self) -> None:
        self._shard = batch_shards.a_shard()
        batch_shards.one_iteration([self._shard])
        batch_shards.commit(self.folder, [self._shard], number=1)
        batch_shards.next_pair(self._shard, order=4)

    def second(self) -> None:
        batch_shards.commit(self.folder, [self._shard], number=2)


class InObjects(Plain):
    """In an object store on the disk."""

    steps = ((objects, "_within"),)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._at = Location(folder / "copies", f"local://{folder}/store")

    def store(self) -> Store:
        return stores.open_store(self._at)

    def first(self) -> None:
        object_stores.a_checkpoint(self._at, 1)

    def second(self) -> None:
        object_stores.a_checkpoint(self._at, 2, shards=1)

    def start_over(self, latest: int) -> None:
        """What one has uploaded the next would find, and make other requests."""
        del latest
        shutil.rmtree(self.folder / "store")
        self.first()


KINDS = {"plain": Plain, "history": History, "objects": InObjects}


def deaths(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Run the program; what is found after each death."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, __file__, str(folder), kind],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=150, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def main(writer: Plain) -> None:
    """Kill one child after another until one survives."""
    writer.first()
    for step in itertools.count():
        child = os.fork()
        if child == 0:
            _write_until(step, writer)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        latest = _newest(writer.store())
        found = {"latest": latest, "complete": writer.store().numbers()}
        sys.stdout.write(json.dumps({"status": status, **found}) + "\n")
        if status == 0:
            return
        writer.start_over(latest)


def _newest(store: Store) -> int:
    """The number of the newest checkpoint, verified."""
    store.drop_copies()
    latest = store.latest()
    assert latest is not None
    store.bring(latest)
    return stores.verify(latest.path).manifest.number


def _write_until(step: int, writer: Plain) -> None:
    steps = itertools.count()

    def dying() -> None:
        if next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    for home, name in writer.steps:
        setattr(home, name, _watched(getattr(home, name), dying))
    writer.second()
    writer.store().retain(KEEP)


def _watched(call: Callable[..., Any], dying: Callable[[], None]) -> Callable[..., Any]:
    def watched(*arguments: Any, **options: Any) -> Any:
        dying()
        result = call(*arguments, **options)
        dying()
        return result

    return watched


if __name__ == "__main__":
    main(KINDS[sys.argv[2]](Path(sys.argv[1])))
