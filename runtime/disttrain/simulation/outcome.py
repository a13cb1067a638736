"""What was simulated of a job with several numbers of replicas, and which to take."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from disttrain.job import stop
from disttrain.job.stop import TargetMetric
from disttrain.job.strategies.sandblaster import lack_of_groups
from disttrain.simulation.evaluations import Point, Result

_COLUMNS = 40
_HEIGHTS = "▁▂▃▄▅▆▇█"
WORTH = 0.9
"""More replicas are worth it as long as they take at most this of the time. Less than that is
about as quick: another seed and the time between two evaluations make as much."""
_GOOD_USE = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What was simulated of one job."""

    job: str
    manifest: str
    """The file, as it was named, and what was changed in it."""
    strategy: str
    target: TargetMetric | None
    less_network: str
    """What the manifest's strategy has against a slow network."""
    results: tuple[Result, ...]
    """By increasing number of replicas."""

    @property
    def name(self) -> str:
        """That of no other."""
        return f"{self.manifest} ({self.strategy})"


def advice(outcome: Outcome) -> str:
    """Which number of replicas to take, in a sentence or two. Pure."""
    results = outcome.results
    if outcome.target is None:
        return (
            "The job has no stop.targetMetric, so these are the seconds for the same samples: see "
            "what more replicas make of the loss, or set a target"
        )
    reached = [result for result in results if result.target_met]
    if not reached:
        wanted = target_text(outcome.target)
        return f"Nobody reaches {wanted}: give the job a longer stop, or another rate"
    taken = _taken(reached)
    after = seconds_text(taken.seconds)
    text = f"Take {replicas_text(taken.replicas)}: {target_text(outcome.target)} after {after}"
    first = reached[0]
    if first is not taken:
        quicker = first.seconds / taken.seconds
        text += f", {quicker:.2g} times as fast as {replicas_text(first.replicas)}"
    wasted = [each for each in reached if each.replicas > taken.replicas]
    if wasted:
        text += f". {replicas_text(wasted[-1].replicas)}: {seconds_text(wasted[-1].seconds)}"
    failed = [str(result.replicas) for result in results if not result.target_met]
    if failed:
        text += f". Not reached with {', '.join(failed)}: the rate may be too high for so many"
    lack = None if taken.groups is None else lack_of_groups(taken.groups, taken.replicas)
    if lack is not None:
        text += f". A batch {lack}"
    elif taken.computing < _GOOD_USE:
        text += (
            f". They compute for {taken.computing:.0%} of their time only; "
            f"{outcome.less_network} use the network less"
        )
    return text


def _taken(reached: Sequence[Result]) -> Result:
    """Each step to more replicas has to be worth it; what lies behind a bad one may be."""
    taken = reached[0]
    for result in reached[1:]:
        if result.seconds <= WORTH * taken.seconds:
            taken = result
    return taken


def text(outcome: Outcome) -> str:
    return "\n".join(_lines(outcome)) + "\n"


def document(outcome: Outcome) -> dict[str, object]:
    """For programs."""
    return {
        "job": outcome.job,
        "manifest": outcome.manifest,
        "strategy": outcome.strategy,
        "advice": advice(outcome),
        "runs": [
            {
                "replicas": result.replicas,
                "seconds": result.seconds,
                "samples": result.samples,
                "samplesPerSecond": result.samples_per_second,
                "targetMet": result.target_met,
                "bytes": result.nbytes,
                "staleness": {str(key): result.staleness[key] for key in sorted(result.staleness)},
                "computing": result.computing,
                "evaluations": [
                    {"seconds": point.seconds, "samples": point.samples, **asdict(point.measured)}
                    for point in result.points
                ],
            }
            for result in outcome.results
        ],
    }


_HEAD = (
    f"{'replicas':>8}  {'seconds':>9}  {'speedup':>7}  {'samples':>9}  {'per second':>10}  "
    f"{'GB sent':>8}  {'staleness':>9}  {'computing':>9}"
)


def _lines(outcome: Outcome) -> Iterator[str]:
    name = stop.said(outcome.target.name if outcome.target else None)
    end = f"until {target_text(outcome.target)}" if outcome.target else "to its end"
    yield f"{outcome.name}: {end}"
    yield f"{_HEAD}  {name}"
    first = outcome.results[0]
    for result in outcome.results:
        ages = [result.staleness_at(share) for share in (0.5, 0.99)] if result.staleness else "-"
        staleness = " / ".join(map(str, ages))
        value = value_of(result.points[-1], outcome.target)
        shown = "-" if value is None else f"{value:.4g}"
        missed = "" if result.target_met is not False else ", not reached"
        yield (
            f"{result.replicas:>8}  {result.seconds:>9.4g}  "
            f"{first.seconds / result.seconds if result.seconds else 1.0:>7.2f}  "
            f"{result.samples:>9,}  {result.samples_per_second:>10.4g}  "
            f"{result.nbytes / 1e9:>8.3g}  {staleness:>9}  {result.computing:>9.0%}  "
            f"{shown}{missed}"
        )
    yield ""
    longest = max(result.seconds for result in outcome.results)
    yield f"{name} over {seconds_text(longest)}:"
    for result in outcome.results:
        yield f"{result.replicas:>8}  {_curve(result, outcome, longest)}"
    yield ""
    yield f"{advice(outcome)}."


def _curve(result: Result, outcome: Outcome, longest: float) -> str:
    """One character for each part of the longest run: what was measured last by then."""
    every = [value_of(point, outcome.target) for each in outcome.results for point in each.points]
    known = [value for value in every if value is not None]
    if not known:
        return ""
    lowest, span = min(known), max(known) - min(known) or 1.0
    found = ""
    for column in range(1, _COLUMNS + 1):
        by = longest * column / _COLUMNS
        so_far = [point for point in result.points if point.seconds <= by * (1 + 1e-9)]
        value = value_of(so_far[-1], outcome.target) if so_far else None
        found += " " if value is None else _HEIGHTS[round((value - lowest) / span * 7)]
        if by >= result.seconds:
            break
    return found


def value_of(point: Point, target: TargetMetric | None) -> float | None:
    return point.measured.measures.get(target.name) if target else point.measured.loss


def target_text(target: TargetMetric) -> str:
    bound = target.at_least if target.at_least is not None else target.at_most
    return f"{target.name} {'>=' if target.at_least is not None else '<='} {bound:g}"


def replicas_text(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"


def seconds_text(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"
