"""Which of several manifests is the quickest to the target, and what is as quick for less. Pure."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from disttrain.job.stop import TargetMetric
from disttrain.simulation import outcome
from disttrain.simulation.evaluations import Result
from disttrain.simulation.outcome import WORTH, Outcome

_MANY = 3.0
"""So many times fewer bytes are worth a word."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One of all that were simulated."""

    of: Outcome
    result: Result

    def __str__(self) -> str:
        return f"{self.of.name} with {outcome.replicas_text(self.result.replicas)}"

    @property
    def document(self) -> dict[str, object]:
        return {
            "manifest": self.of.manifest,
            "strategy": self.of.strategy,
            "replicas": self.result.replicas,
            "seconds": self.result.seconds,
            "bytes": self.result.nbytes,
        }


def advice(outcomes: Sequence[Outcome]) -> str | None:
    """Which manifest to take with how many replicas; None: there is only one."""
    if len(outcomes) < 2:
        return None
    target = _target(outcomes)
    if target is None:
        return (
            "Manifests are compared by the seconds to one target: give all of them the same by "
            "--set 'spec.stop.targetMetric={name: accuracy, atLeast: 0.9}'"
        )
    found, said = quickest(outcomes), outcome.target_text(target)
    if found is None:
        nearest = _nearest(outcomes)
        text = "" if nearest is None else f"; the nearest is {nearest}"
        return f"No manifest reaches {said}: give all a longer stop, or other rates{text}"
    text = f"The quickest is {found}: {said} after {outcome.seconds_text(found.result.seconds)}"
    alike = "; ".join(_beside(found, each) for each in as_quick(outcomes))
    return f"{text}. About as quick: {alike}" if alike else text


def quickest(outcomes: Sequence[Outcome]) -> Run | None:
    """None: no run has met the target, or there is not one for all."""
    return min(_reached(outcomes), key=lambda run: run.result.seconds, default=None)


def as_quick(outcomes: Sequence[Outcome]) -> list[Run]:
    """Beside the quickest: of each manifest the run with the fewest replicas, if it is so."""
    best = quickest(outcomes)
    if best is None:
        return []
    near: dict[str, Run] = {}
    for run in _reached(outcomes):
        if WORTH * run.result.seconds <= best.result.seconds:
            near.setdefault(run.of.name, run)
    return [run for run in near.values() if run != best]


def to_json(outcomes: Sequence[Outcome]) -> str:
    """All of it, for programs."""
    best = quickest(outcomes)
    whole = {
        "jobs": [outcome.document(each) for each in outcomes],
        "advice": advice(outcomes),
        "quickest": None if best is None else best.document,
        "asQuick": [run.document for run in as_quick(outcomes)],
    }
    return json.dumps(whole, indent=2) + "\n"


def _target(outcomes: Sequence[Outcome]) -> TargetMetric | None:
    """That of all; None: there is no such."""
    first, *others = [each.target for each in outcomes]
    return first if all(each == first for each in others) else None


def _reached(outcomes: Sequence[Outcome]) -> Iterator[Run]:
    for each in outcomes if _target(outcomes) else ():
        for result in each.results:
            if result.target_met:
                yield Run(of=each, result=result)


def _beside(best: Run, run: Run) -> str:
    text = f"{run}, {outcome.seconds_text(run.result.seconds)}"
    fewer = best.result.nbytes / max(1, run.result.nbytes)
    return f"{text} and {fewer:.2g} times fewer bytes" if fewer >= _MANY else text


def _nearest(outcomes: Sequence[Outcome]) -> str | None:
    """The run whose last evaluation was the best of all, and what it was."""
    found: list[tuple[float, str]] = []
    for each in outcomes:
        assert each.target is not None  # noqa: S101  The caller has looked.
        sign = 1 if each.target.at_least is not None else -1
        for result in each.results:
            value = outcome.value_of(result.points[-1], each.target)
            if value is not None and math.isfinite(value):
                text = f"{Run(of=each, result=result)}, {each.target.name} {value:.4g}"
                found.append((sign * value, text))
    return max(found, default=(0.0, None))[1]
