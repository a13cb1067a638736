"""The alerts as groups of Prometheus' rules."""

from typing import Any, Final

import yaml

from disttrain_monitoring.alerts import ALERTS, Alert

RUNBOOK: Final = "docs/alerts.md"
"""The page with a section for each alert; the chart puts another address in its place."""

_HEAD: Final = (
    "# Made by `make generate` from disttrain_monitoring.alerts; changes here are lost.\n"
)


def as_yaml() -> str:
    """Return a file of rules, as Prometheus loads it and as a PrometheusRule's spec has it."""
    text: str = yaml.safe_dump(groups(), sort_keys=False, width=100, allow_unicode=True)
    return f"{_HEAD}{text}"


def groups() -> dict[str, Any]:
    """Return the same as an object."""
    return {"groups": [{"name": "disttrain", "rules": [_rule(alert) for alert in ALERTS]}]}


def runbook(alert: Alert) -> str:
    """Return the address of the section about an alert."""
    return f"{RUNBOOK}#{alert.name.lower()}"


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": f"{alert.minutes}m",
        "labels": {"severity": alert.severity.value},
        "annotations": {
            "summary": alert.summary,
            "description": alert.means,
            "runbook_url": runbook(alert),
        },
    }
