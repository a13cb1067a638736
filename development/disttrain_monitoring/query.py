"""Queries and the pieces that they are made of. Only text: nothing here asks a Prometheus."""

from dataclasses import dataclass
from typing import Final

from disttrain_monitoring import labels

WINDOW: Final = "$__rate_interval"
"""Grafana's name for a window that always holds enough scrapes."""

_OF_JOB: Final = f'{labels.NAMESPACE}="$namespace", {labels.JOB}="$job"'
_OPERATOR: Final = f'{labels.COMPONENT}="operator"'


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel; `legend` names its series in Grafana's form."""

    text: str
    legend: str = ""


def of_job(metric: str, *matchers: str) -> str:
    """Return the series of the job that the dashboard's variables choose."""
    return f"{metric}{{{', '.join((_OF_JOB, *matchers))}}}"


def of_operator(metric: str) -> str:
    """Return the series of operators, for metrics that other programs serve, too."""
    return f"{metric}{{{_OPERATOR}}}"


def rate(series: str, window: str = WINDOW) -> str:
    """Return the increase of a counter per second."""
    return f"rate({series}[{window}])"


def increase(series: str, window: str = WINDOW) -> str:
    """Return the increase of a counter within the window."""
    return f"increase({series}[{window}])"


def total(series: str, *by: str) -> str:
    """Return the sum of all series that agree in the labels `by`."""
    return f"sum by ({', '.join(by)}) ({series})" if by else f"sum({series})"


def largest(series: str, *by: str) -> str:
    """Return the maximum of all series that agree in the labels `by`."""
    return f"max by ({', '.join(by)}) ({series})" if by else f"max({series})"


def quantile(fraction: float, buckets: str, *by: str, window: str = WINDOW) -> str:
    """Return a quantile of a histogram, by the series of its buckets."""
    return f"histogram_quantile({fraction}, {total(rate(buckets, window), *by, 'le')})"


def quantiles(buckets: str, *by: str) -> tuple[Query, ...]:
    """Return the median and the 99th percentile."""
    prefix = "".join(f"{{{{{label}}}}} " for label in by)
    return (
        Query(quantile(0.5, buckets, *by), f"{prefix}median"),
        Query(quantile(0.99, buckets, *by), f"{prefix}99%"),
    )
