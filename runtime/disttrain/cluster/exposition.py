"""The text that a process serves at /metrics, as far as `top` reads it. Pure."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_LABELS: Final = r"""\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\}"""
_SAMPLE: Final = re.compile(rf"(?P<name>[a-zA-Z_:][\w:]*)(?:{_LABELS})? (?P<value>\S+)")
_BOUND: Final = re.compile(r'le="(\+Inf|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"')


@dataclass(frozen=True, slots=True)
class Metrics:
    """Samples of one process by name, and its histograms by name and bound."""

    values: dict[str, float]
    """Sums over labels."""
    buckets: dict[str, dict[float, float]]
    """Counts up to each bound."""

    def quantile(self, name: str, share: float) -> float | None:
        """The bound below which a share of a histogram lies; None while it is empty."""
        bounds = sorted(self.buckets.get(name, {}).items())
        total = bounds[-1][1] if bounds else 0
        if not total:
            return None
        return next(bound for bound, count in bounds if count >= share * total)


def parse(text: str) -> Metrics:
    """Read the text format of Prometheus; lines of other shapes are passed over."""
    metrics = Metrics({}, {})
    for name, labels, value in _samples(text.splitlines()):
        bound = _BOUND.search(labels)
        if name.endswith("_bucket") and bound is not None:
            counts = metrics.buckets.setdefault(name.removesuffix("_bucket"), {})
            limit = float(bound[1])
            counts[limit] = counts.get(limit, 0) + value
        else:
            metrics.values[name] = metrics.values.get(name, 0) + value
    return metrics


def _samples(lines: Iterable[str]) -> Iterable[tuple[str, str, float]]:
    for line in lines:
        match = _SAMPLE.match(line)
        if match is None:
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        if math.isfinite(value):
            yield match["name"], match["labels"] or "", value
