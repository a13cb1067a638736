"""Replays a run, and says what came out."""

from dataclasses import dataclass
from pathlib import Path

from disttrain.replay import final_values, measuring, recording
from disttrain.replay.asynchrony import Delays, Observer
from disttrain.replay.final_values import Compared
from disttrain.replay.measuring import Measured
from disttrain.replay.serial import SerialTraining
from disttrain.replay.world import World


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What is to be found out."""

    to_update: int | None = None
    """Stop when every shard has applied so many updates."""
    serial: bool = False
    """Train once more on the same samples in the same order, without staleness."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a replay found."""

    versions: tuple[int, ...]
    """Of each shard at the end."""
    replicas: int
    """Lives of replicas."""
    losses_compared: int
    updates_compared: int
    differences: tuple[str, ...]
    """Where the replay and the record part, in their order."""
    values: Compared | str
    """The comparison with the last checkpoint, or why there is none."""
    delays: tuple[Delays, ...]
    measured: Measured | None
    """Of the replayed values; with `to_update` or `serial`."""
    serial: Measured | None
    """Of the training without asynchrony."""

    @property
    def is_same(self) -> bool:
        different = isinstance(self.values, Compared) and self.values.first_difference
        return not self.differences and not different


def replay(folder: Path, wanted: Wanted) -> Outcome:
    """Replay the run in a folder. Raises NotReplayable, RecordContradicted, DistTrainError."""
    recorded = recording.read(folder)
    observer = Observer()
    world = World(recorded, observer)
    world.run(wanted.to_update)
    measured = serial = None
    if wanted.serial or wanted.to_update is not None:
        measured = measuring.measure(recorded, measuring.whole_values(world.shards))
    if wanted.serial:
        training = SerialTraining(recorded)
        training.run(observer.order)
        serial = measuring.measure_module(recorded, training.module)
    return Outcome(
        versions=tuple(shard.state.count for shard in world.shards),
        replicas=len(world.replicas),
        losses_compared=world.differences.losses,
        updates_compared=world.differences.updates,
        differences=tuple(world.differences.found),
        values=final_values.compare(recorded.checkpoint, world.shards),
        delays=observer.delays(),
        measured=measured,
        serial=serial,
    )
