"""What `disttrain plan` tells of steps, in a table and a sentence. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from disttrain.parallel.pricing import IDLE, MESSAGES, WAITING, Machine, PlannedStep
from disttrain.parallel.windows import Grid

SHARED, SHARDS = "shared values", "pushes and fetches"
_WORTH = 0.95
"""More partitions are worth it as long as they take at most this of the time."""
_BAR = 24
MOST_LISTED = 8
"""Partitions whose figures are told one by one."""
_TITLES = (
    "partitions",
    "grid",
    "step",
    "speed-up",
    "crossing",
    "waiting",
    "idle",
    "values",
    "shards",
    "GFLOP",
    "parameters",
    "activations",
    "memory",
    "sent",
    "messages",
)


def advice(planned: Sequence[PlannedStep]) -> str:
    """Whether more partitions will help, in a sentence. Pure."""
    taken = first = planned[0]
    for step in planned[1:]:
        if step.seconds <= _WORTH * taken.seconds:
            taken = step
    if len(planned) == 1:
        return "Name several numbers of partitions to compare them."
    if not first.largest.flops:
        return "The model has no dense products, which is all that is counted: measure it."
    return f"{_taken(first, taken, planned)} {_why(planned[-1])}"


def _taken(first: PlannedStep, taken: PlannedStep, planned: Sequence[PlannedStep]) -> str:
    before, last = planned[-2:]
    if taken is first:
        text = f"Stay with {_partitions(first)}:"
    else:
        gained = first.seconds / taken.seconds
        text = f"Take {_partitions(taken)}, {gained:.2g} times as fast as {first.partitions}:"
    if taken is last:
        gained, most = before.seconds / last.seconds, last.partitions / before.partitions
        return (
            f"{text} from {before.partitions} to {last.partitions} a step becomes {gained:.2g} "
            f"times as fast, of {most:.2g}, so that more may help still."
        )
    longer = last.seconds / taken.seconds
    if longer > 1 / _WORTH:
        return f"{text} with {last.partitions} a step takes {longer:.2g} times as long."
    return f"{text} more hardly help."


def _why(step: PlannedStep) -> str:
    shares = step.shares
    messages = shares.pop(MESSAGES)
    *others, last = (
        f"{name} {each:.0%}" for name, each in shares.items() if each or name == WAITING
    )
    told = "".join(f", {each}" for each in others)
    return f"Of a step with {step.partitions}, messages take {messages:.0%}{told} and {last}."


def lines(
    planned: Sequence[PlannedStep],
    refused: Sequence[str],
    machine: Machine,
    samples: int,
    beside: Iterable[str] = (),
) -> Iterator[str]:
    """What a person reads. `beside`: what a job does that is in no step."""
    yield from (f"cannot be divided: {each}" for each in refused)
    if not planned:
        return
    yield (
        f"a batch of {samples}, {machine.flops_per_second / 1e9:.3g} GFLOP/s, "
        f"{8 * machine.bytes_per_second / 1e9:.3g} Gbit/s, {machine.latency_seconds * 1e6:.3g} us, "
        f"jitter {machine.jitter:.0%}"
    )
    yield from _table(planned)
    yield from planned[-1].notes
    yield from beside
    yield advice(planned)


def _table(planned: Sequence[PlannedStep]) -> Iterator[str]:
    gains = [gain(planned[0], step) for step in planned]
    rows = [_TITLES, *(tuple(_cells(*each)) for each in zip(planned, gains, strict=True))]
    widths = [2 + max(map(len, column)) for column in zip(*rows, strict=True)]
    bars = ["", *("  " + "#" * max(1, round(_BAR * each / max(gains))) for each in gains)]
    for row, bar in zip(rows, bars, strict=True):
        yield "".join(map(str.rjust, row, widths)) + bar


def of_each(step: PlannedStep) -> Iterator[str]:
    """What each partition does, where there are few of them."""
    for rank, cost in enumerate(step.costs if 1 < step.partitions <= MOST_LISTED else ()):
        yield (
            f"{said(step.grid)}, partition {rank}: {cost.flops / 1e9:.3g} GFLOP, "
            f"{cost.parameters:,} parameters, activations {byte_size(cost.activation_bytes)}, "
            f"memory {byte_size(cost.memory_bytes)}; sends {byte_size(cost.nbytes)} in "
            f"{cost.messages:,} messages"
        )


def _cells(step: PlannedStep, gained: float) -> Iterator[str]:
    """In the order of `_TITLES`."""
    largest = step.largest
    yield str(step.partitions)
    yield said(step.grid)
    yield _time(step.seconds)
    yield f"{gained:.2f}"
    shares = {SHARED: 0.0, SHARDS: 0.0, **step.shares}
    for name in (MESSAGES, WAITING, IDLE, SHARED, SHARDS):
        yield f"{shares[name]:.0%}"
    yield f"{largest.flops / 1e9:.3g}"
    yield f"{largest.parameters:,}"
    yield byte_size(largest.activation_bytes)
    yield byte_size(largest.memory_bytes)
    yield byte_size(largest.nbytes)
    yield f"{largest.messages:,}"


def gain(first: PlannedStep, step: PlannedStep) -> float:
    """How many times as fast; 1 where neither takes any time that is counted."""
    return first.seconds / step.seconds if step.seconds else 1.0


def _partitions(step: PlannedStep) -> str:
    return f"{step.partitions} partition{'s' if step.partitions > 1 else ''}"


def said(grid: Grid) -> str:
    return f"{grid.rows}x{grid.columns}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def byte_size(number: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} B"
