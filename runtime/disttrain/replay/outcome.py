"""Replays a run, and says what came out: to programs, and as lines to people."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from disttrain.replay import final_values, recording
from disttrain.replay.asynchrony import Delays, Observer
from disttrain.replay.final_values import Compared, Measured
from disttrain.replay.recording import NotReplayable
from disttrain.replay.replayed_run import ReplayedRun
from disttrain.replay.serial import SerialTraining


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a replay found."""

    versions: tuple[int, ...]
    """Of each shard at the end."""
    replicas: int
    """Incarnations of replicas."""
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


def replay(folder: Path, *, to_update: int | None = None, serial: bool = False) -> Outcome:
    """Replay the run in a folder. Raises NotReplayable, RecordContradicted, DistTrainError.

    `to_update`: until every shard has applied so many updates. `serial`: also train once more on
    the same samples in the same order, without staleness.
    """
    recorded = recording.read(folder)
    if serial and recorded.spec.strategy.downpour is None:
        raise NotReplayable(
            "without asynchrony there is no training of localSteps: its replicas have optimizers "
            "of their own; replay the run without --serial"
        )
    observer = Observer()
    replayed = ReplayedRun(recorded, observer)
    replayed.run(to_update)
    measured = without = None
    if serial or to_update is not None:
        evaluates = recorded.spec.strategy.rule.evaluates
        values = final_values.whole_values(replayed.shards, evaluates)
        measured = final_values.measure(recorded, values)
    if serial:
        training = SerialTraining(recorded)
        training.run(observer.order)
        without = final_values.measure_module(recorded, training.module)
    return Outcome(
        versions=tuple(shard.state.count for shard in replayed.shards),
        replicas=len(replayed.replicas),
        losses_compared=replayed.differences.losses,
        updates_compared=replayed.differences.updates,
        differences=tuple(replayed.differences.found),
        values=final_values.compare(recorded.checkpoint, replayed.shards),
        delays=observer.delays(),
        measured=measured,
        serial=without,
    )


_MOST_SHOWN = 5


def text(outcome: Outcome) -> str:
    return "\n".join(_lines(outcome)) + "\n"


def to_json(outcome: Outcome) -> str:
    return json.dumps({"same": outcome.is_same, **asdict(outcome)}, indent=2) + "\n"


def _lines(outcome: Outcome) -> Iterator[str]:
    versions = ", ".join(map(str, outcome.versions))
    yield (
        f"replayed {outcome.replicas} incarnations of replicas; "
        f"the shards are at versions {versions}"
    )
    yield (
        f"compared {outcome.losses_compared} losses and gradient norms, "
        f"{outcome.updates_compared} versions and stalenesses: "
        f"{len(outcome.differences) or 'no'} differences"
    )
    for difference in outcome.differences[:_MOST_SHOWN]:
        yield f"  - {difference}"
    yield _values(outcome.values)
    yield ""
    yield from _delays(outcome.delays)
    if outcome.measured is not None:
        yield _measured("asynchronous", outcome.measured)
    if outcome.serial is not None:
        yield _measured("serial", outcome.serial)


def _values(values: Compared | str) -> str:
    if isinstance(values, str):
        return f"parameters not compared: {values}"
    if values.first_difference:
        return f"DIFFERS from checkpoint {values.checkpoint}: {values.first_difference}"
    return (
        f"bit-identical to checkpoint {values.checkpoint}: {values.elements:,} values, "
        "optimizer state included"
    )


def _delays(delays: tuple[Delays, ...]) -> Iterator[str]:
    yield "what asynchrony did, from the parameters a gradient was computed on to those it met:"
    yield "replica  pushes  staleness p50 / p99 / max  distance mean / max    relative"
    for row in delays:
        staleness = f"{row.staleness_p50} / {row.staleness_p99} / {row.staleness_max}"
        distance = f"{row.distance_mean:.4g} / {row.distance_max:.4g}"
        yield (
            f"{row.replica:<7}  {row.pushes:<6}  {staleness:<25}  {distance:<21}  "
            f"{row.relative_distance_mean:.2%}"
        )
    for row in delays:
        counts = ", ".join(f"{value}: {count}" for value, count in row.histogram.items())
        yield f"staleness of replica {row.replica}: {counts}"


def _measured(name: str, measured: Measured) -> str:
    measures = "".join(f" · {key} {value:.4f}" for key, value in measured.measures.items())
    loss = "unknown" if measured.loss is None else f"{measured.loss:.6f}"
    return f"{name}: test loss {loss}{measures}"
