"""What the ledgers of a shard say was applied, and what of that is in its values."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from disttrain.launch.run_folder import RunFolder
from disttrain.parameter_server import ledger
from disttrain.parameter_server.ledger import Kind
from simulation.world import PushName, World

Chunk = tuple[PushName, int]
Records = NDArray[np.void]
_CHANGES = (Kind.CHUNK_APPLIED, Kind.PUSHED, Kind.MERGED)


@dataclass(frozen=True, slots=True)
class Change:
    """A chunk that was applied, a push that was complete then, or a merge."""

    kind: Kind
    push: PushName
    chunk: int
    """Of a merge the number of the fragment."""
    first: int
    live_replicas: int


@dataclass(slots=True)
class Told:
    """What the ledgers of all incarnations of one shard say."""

    ever: list[PushName] = field(default_factory=list)
    """Every complete push, rolled back or not."""
    held: list[PushName] = field(default_factory=list)
    """Those in the values at the end, or with which the warm start has ended."""
    chunks: list[Chunk] = field(default_factory=list)
    """In the same values."""
    changes: list[Change] = field(default_factory=list)
    """What has made these values, in its order."""
    after_fence: list[PushName] = field(default_factory=list)


def read(world: World, shard: int, cut: int | None = None) -> Told:
    """From the job's folder, while it is there. `cut`: with which a warm start has ended."""
    found, fenced = Told(), set[tuple[int, int]]()
    records: dict[int, Records] = {}
    values: dict[int, Records] = {}
    folder = RunFolder(world.folder).ledger
    files = {
        int(path.stem.rpartition(".i")[2]): path for path in folder.glob(f"shard-{shard}.i*.bin")
    }
    for incarnation in sorted(files):
        records[incarnation] = ledger.read(files[incarnation])
        values[incarnation] = _values(world, shard, records[incarnation], values)
        for record in records[incarnation]:
            sender = (int(record["sender"]), int(record["incarnation"]))
            if record["kind"] == Kind.FENCED:
                fenced.add(sender)
            elif record["kind"] == Kind.CHUNK_APPLIED and sender in fenced:
                found.after_fence.append(_push(record))
        found.ever += [_push(record) for record in _of(records[incarnation], Kind.PUSHED)]
    last = values[max(values)] if cut is None else _saved(world, shard, cut, values)
    found.held = [_push(record) for record in _of(last, Kind.PUSHED)]
    applied = _of(last, Kind.CHUNK_APPLIED)
    found.chunks = [(_push(record), int(record["chunk"])) for record in applied]
    found.changes = [_change(record) for record in last if record["kind"] in _CHANGES]
    return found


def _values(world: World, shard: int, mine: Records, before: dict[int, Records]) -> Records:
    """What an incarnation's values are made of: the checkpoint that it began with, and its own."""
    restored = [int(record["sequence"]) for record in _of(mine, Kind.RESTORED)]
    if not restored:
        return mine
    return np.concatenate([_saved(world, shard, restored[0], before), mine])


def _saved(world: World, shard: int, checkpoint: int, values: dict[int, Records]) -> Records:
    """What the values in a checkpoint are made of."""
    writer, records = world.cuts[checkpoint, shard]
    # Those of the writer come behind those that it began with itself.
    own = ledger.read(ledger.path_of(RunFolder(world.folder).ledger, shard, writer))
    begun = len(values[writer]) - len(own)
    return values[writer][: begun + records]


def _of(records: Records, kind: Kind) -> Iterator[Records]:
    return iter(records[records["kind"] == kind])


def _change(record: Records) -> Change:
    numbers = (int(record[name]) for name in ("chunk", "first", "live_replicas"))
    return Change(Kind(int(record["kind"])), _push(record), *numbers)


def _push(record: Records) -> PushName:
    return PushName(int(record["sender"]), int(record["incarnation"]), int(record["sequence"]))
