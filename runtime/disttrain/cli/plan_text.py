"""What `disttrain plan` tells of steps, in a table and a sentence. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from disttrain.parallel.pricing import Machine, PlannedStep
from disttrain.parallel.windows import Grid

_WORTH = 0.95
"""More partitions are worth it as long as they take at most this of the time."""
_BAR = 24
_TITLES = (
    "partitions",
    "grid",
    "step",
    "speed-up",
    "crossing",
    "waiting",
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
    if not first.seconds:
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
    crossing, waiting = step.crossing_seconds / step.seconds, step.waiting_seconds / step.seconds
    return (
        f"Of a step with {step.partitions}, messages take {crossing:.0%} and waiting for the "
        f"slowest {waiting:.0%}."
    )


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
    yield "".join(f"{title:>12}" for title in _TITLES)
    fastest = max(gain(planned[0], step) for step in planned)
    for step in planned:
        gained = gain(planned[0], step)
        bar = "#" * max(1, round(_BAR * gained / fastest))
        yield "".join(f"{cell:>12}" for cell in _cells(step, gained)) + f"  {bar}"
    yield from planned[-1].notes
    yield from beside
    yield advice(planned)


def _cells(step: PlannedStep, gained: float) -> Iterator[str]:
    """In the order of `_TITLES`."""
    seconds = step.seconds or 1.0
    yield str(step.partitions)
    yield said(step.grid)
    yield _time(step.seconds)
    yield f"{gained:.2f}"
    yield f"{step.crossing_seconds / seconds:.0%}"
    yield f"{step.waiting_seconds / seconds:.0%}"
    yield f"{step.flops / 1e9:.3g}"
    yield f"{step.parameters:,}"
    yield byte_size(step.activation_bytes)
    yield byte_size(step.memory_bytes)
    yield byte_size(step.nbytes)
    yield f"{step.messages:,}"


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
