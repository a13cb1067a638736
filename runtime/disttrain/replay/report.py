"""How the outcome of a replay is shown. Pure."""

import json
from collections.abc import Iterator
from dataclasses import asdict

from disttrain.replay.asynchrony import Delays
from disttrain.replay.final_values import Compared
from disttrain.replay.measuring import Measured
from disttrain.replay.outcome import Outcome

_MOST_SHOWN = 5


def text(outcome: Outcome) -> str:
    return "\n".join(_lines(outcome)) + "\n"


def to_json(outcome: Outcome) -> str:
    return json.dumps({"same": outcome.is_same, **asdict(outcome)}, indent=2) + "\n"


def _lines(outcome: Outcome) -> Iterator[str]:
    versions = ", ".join(map(str, outcome.versions))
    yield f"replayed {outcome.replicas} lives of replicas; the shards are at versions {versions}"
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
