"""Tests of alerts as promtool runs them: made-up series, and whether an alert fires."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from cluster import commands
from disttrain_monitoring import rules
from disttrain_monitoring.alerts import Alert

JOB: Final = {"namespace": "team", "disttrain_job": "digits"}
_INTERVAL: Final = "1m"


@dataclass(frozen=True, kw_only=True, slots=True)
class Firing:
    """What an alert that fires carries."""

    labels: Mapping[str, str]
    value: str
    """As its text shows it."""


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    """A series of the job, a value per minute in promtool's notation."""
    return raw_series(name, values, **JOB, **labels)


def raw_series(name: str, values: str, **labels: str) -> dict[str, str]:
    """A series without the job's labels."""
    text = ", ".join(f'{label}="{value}"' for label, value in labels.items())
    return {"series": f"{name}{{{text}}}", "values": values}


def run(
    folder: Path, alert: Alert, data: list[dict[str, str]], minute: int, firing: Firing | None
) -> None:
    """Raise CommandFailed unless the alert is at that minute as it is said."""
    (folder / "rules.yaml").write_text(rules.as_yaml())
    expected = {"eval_time": f"{minute}m", "alertname": alert.name}
    if firing is not None:
        expected["exp_alerts"] = [_shown(alert, firing)]  # type: ignore[assignment]
    case = {"interval": _INTERVAL, "input_series": data, "alert_rule_test": [expected]}
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": _INTERVAL, "tests": [case]}
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump(content))
    commands.run("promtool", "test", "rules", file)


def _shown(alert: Alert, firing: Firing) -> dict[str, Any]:
    return {
        "exp_labels": {"severity": alert.severity.value, **firing.labels},
        "exp_annotations": {
            "summary": _filled_in(alert.summary, firing),
            "description": _filled_in(alert.means, firing),
            "runbook_url": rules.runbook(alert),
        },
    }


def _filled_in(text: str, firing: Firing) -> str:
    with_labels = re.sub(
        r"\{\{ \$labels\.(\w+) \}\}", lambda found: firing.labels[found.group(1)], text
    )
    return re.sub(r"\{\{ \$value[^}]*\}\}", firing.value, with_labels)
