"""Writers of checkpoints that die.

One commits checkpoint 1, then begins checkpoint 2 again and again, each time in a child that is
killed one step later: before and after each system call that changes the disk, or each request to
an object store.
"""

import itertools
import os
import shutil
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from builders import batch_shards, object_stores, warm_processes
from builders.checkpoints import a_checkpoint, a_layout, stage
from disttrain.checkpoint import objects, stores
from disttrain.checkpoint.stores import Store
from disttrain.job.location import Location
from disttrain.launch import linux

CALLS = ("open", "write", "fsync", "link", "rename", "mkdir", "close")
KEEP = 1
_PATIENCE_SECONDS = 150.0


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
        batch_shards.next_pair(self._shard, command=4)

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
    """What is found after each death, in a process that may fork and kill."""
    context = warm_processes.context()
    ours, theirs = context.Pipe()
    writer = KINDS[kind](folder)
    process = context.Process(target=_kill_all, args=(theirs, writer), daemon=True)
    process.start()
    theirs.close()
    try:
        assert ours.poll(_PATIENCE_SECONDS), "no writer has survived"
        found: list[dict[str, Any]] = ours.recv()
    finally:
        process.kill()
        process.join()
    return found


def _kill_all(told: Connection, writer: Plain) -> None:
    """Kill one child after another until one survives."""
    linux.end_with_parent(os.getppid(), signal.SIGKILL)
    found: list[dict[str, Any]] = []
    writer.first()
    while not found or found[-1]["status"]:
        child = os.fork()
        if child == 0:
            _write_until(len(found), writer)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status in {0, signal.SIGKILL}, "a writer has failed"
        latest = _newest(writer.store())
        found.append({"status": status, "latest": latest, "complete": [*writer.store().numbers()]})
        if status:
            writer.start_over(latest)
    told.send(found)


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
