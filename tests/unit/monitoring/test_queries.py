"""What queries name is what processes serve."""

import re
from collections.abc import Iterator
from typing import Final

import pytest

from disttrain_monitoring import labels, metrics_page
from disttrain_monitoring.alerts import ALERTS
from disttrain_monitoring.fleet import FLEET
from disttrain_monitoring.one_job import ONE_JOB

OF_PROMETHEUS: Final = {"up"}
OF_ANY_PYTHON: Final = {"process_resident_memory_bytes", "process_cpu_seconds_total"}
"""prometheus_client serves them for the operator, by its ProcessCollector."""
MADE_BY_QUERIES: Final = {"le"}


def all_queries() -> dict[str, str]:
    """Each query with where it stands."""
    panels = {
        f"{board.identity}/{panel.title}/{number}": query.text
        for board in (FLEET, ONE_JOB)
        for panel in board.panels
        for number, query in enumerate(panel.queries)
    }
    variables = {f"${variable.name}": variable.series for variable in ONE_JOB.variables}
    return panels | variables | {alert.name: alert.expression for alert in ALERTS}


QUERIES: Final = all_queries()


def names(query: str) -> set[str]:
    """The metrics of a query."""
    return set(re.findall(r"\b(?:disttrain|process)_\w+|\bup\b", query)) - set(labels.ALL)


def labels_in(query: str) -> Iterator[str]:
    """The labels that a query matches or groups by."""
    yield from re.findall(r'(\w+)=~?"', query)
    for group in re.findall(r"\b(?:by|on|ignoring) \(([^)]*)\)", query):
        yield from group.split(", ")


@pytest.fixture(scope="module")
def served() -> dict[str, set[str]]:
    """The labels of each series that our code serves."""
    found: dict[str, set[str]] = {}
    for metrics in metrics_page.groups().values():
        for metric in metrics:
            for series in metric.series:
                found.setdefault(series, set()).update(metric.labels)
    return found


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_a_query_names_only_metrics_and_labels_that_are_served(
    query: str, served: dict[str, set[str]]
) -> None:
    found = names(query)

    assert found
    assert found <= served.keys() | OF_PROMETHEUS | OF_ANY_PYTHON
    known = set(labels.ALL) | MADE_BY_QUERIES
    for name in found:
        known |= served.get(name, set())
    assert set(labels_in(query)) <= known


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_what_grows_is_read_as_a_rate_and_what_does_not_is_not(query: str) -> None:
    rated = set(re.findall(r"\b(?:rate|increase)\((\w+)", query))

    assert all(name.endswith(("_total", "_bucket", "_count", "_sum")) for name in rated)
    assert all(name in rated for name in names(query) if name.endswith("_bucket"))


def test_the_guard_sees_a_metric_that_nobody_serves(served: dict[str, set[str]]) -> None:
    assert names('sum(rate(disttrain_typo_total{disttrain_job="$job"}[5m]))') == {
        "disttrain_typo_total"
    }
    assert "disttrain_typo_total" not in served


def test_every_metric_of_the_code_is_on_the_page() -> None:
    page = metrics_page.page()

    for metrics in metrics_page.groups().values():
        assert metrics
        assert all(f"| `{metric.name}` |" in page for metric in metrics)


def test_a_former_name_is_served_no_more_and_the_name_of_today_is() -> None:
    served = {each.name for metrics in metrics_page.groups().values() for each in metrics}
    assert not metrics_page.FORMER.keys() & served
    assert set(metrics_page.FORMER.values()) <= served
