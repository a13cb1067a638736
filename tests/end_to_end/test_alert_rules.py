"""Each alert fires for what it is about, and for nothing like it; promtool judges."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cluster import commands
from disttrain_monitoring import alerts, rules
from disttrain_monitoring.alerts import ALERTS, Alert

pytestmark = [pytest.mark.landing, pytest.mark.usefixtures("prometheus_programs")]

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


def judge(
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


RUNNING: Final = series("disttrain_job_phase", "1x60", phase="Running")
EVALUATING: Final = series("disttrain_job_phase", "0x60", phase="Running")
"""Or any other phase."""


def always(value: str) -> str:
    """For values that the notation of series does not repeat."""
    return " ".join([value] * 60)


def of_job(value: str = "0", **labels: str) -> Firing:
    return Firing(labels={**JOB, **labels}, value=value)


def staleness(high: str, bound: str = "24x60") -> list[dict[str, str]]:
    """100 pushes per minute, of which `high` many are above 32 updates."""
    buckets = {"16": "0+99x60", "32": "0+99x60", "64": high, "+Inf": high}
    name = "disttrain_gradient_staleness_updates_bucket"
    return [
        *(series(name, values, component="shard", le=le) for le, values in buckets.items()),
        series("disttrain_staleness_bound_updates", bound),
    ]


def checkpoints(timestamp: str, interval: str = "60x60") -> list[dict[str, str]]:
    return [
        series("disttrain_job_checkpoint_timestamp_seconds", timestamp),
        series("disttrain_job_checkpoint_interval_seconds", interval),
    ]


def shards(heard: str) -> list[dict[str, str]]:
    return [
        series("disttrain_shards_wanted", "2x60"),
        series("disttrain_members", heard, role="shard"),
        series("disttrain_members", "0x60", role="replica"),
    ]


SAMPLES: Final = "disttrain_job_samples"
ERRORS: Final = "disttrain_operator_reconcile_errors_total"
RESTARTS: Final = "disttrain_restarts_total"
DEPTH: Final = "disttrain_operator_queue_depth"
OPERATOR: Final = raw_series(DEPTH, "0x10 _x90", namespace="system", pod="operator")
OTHER_OPERATOR: Final = raw_series(DEPTH, "0x100", namespace="other", pod="operator")

FIRING: Final = [
    (alerts.JOB_STUCK, [RUNNING, series(SAMPLES, "0+9x10 90x50")], 25, of_job()),
    (alerts.JOB_STUCK, [RUNNING, series(SAMPLES, "0x60")], 6, of_job()),
    (alerts.SHARD_DOWN, [RUNNING, *shards("2x5 1x50")], 10, of_job("1")),
    (
        alerts.COORDINATOR_DOWN,
        [series("up", "1x5 0x30", component="coordinator", pod="c")],
        12,
        of_job(component="coordinator", pod="c"),
    ),
    (alerts.CHECKPOINT_TOO_OLD, [RUNNING, *checkpoints("0x60")], 20, of_job("20")),
    (alerts.CHECKPOINT_TOO_OLD, [RUNNING, *checkpoints("0x60", "5x60")], 20, of_job("20")),
    (alerts.STALENESS, staleness("0+110x60"), 25, of_job()),
    (
        alerts.RESTARTS,
        [series(RESTARTS, "0x5 0+1x30", role="shard")],
        25,
        of_job("19", role="shard"),
    ),
    (
        alerts.OPERATOR_DOWN,
        [OPERATOR, OTHER_OPERATOR],
        21,
        Firing(labels={"namespace": "system"}, value="0"),
    ),
    (alerts.OPERATOR_DOWN, [], 5, Firing(labels={}, value="1")),
    (
        alerts.RECONCILE_ERRORS,
        [raw_series(ERRORS, "0+1x40", namespace="system", kind="Forbidden", pod="operator")],
        30,
        Firing(labels={"namespace": "system", "kind": "Forbidden"}, value="15"),
    ),
]

QUIET: Final = {
    "trains": (alerts.JOB_STUCK, [RUNNING, series(SAMPLES, "0+9x60")], 40),
    "trains seldom": (alerts.JOB_STUCK, [RUNNING, series(SAMPLES, "0x8 9x8 18x8 27x8")], 30),
    "evaluates": (alerts.JOB_STUCK, [EVALUATING, series(SAMPLES, "90x60")], 40),
    "stuck for a moment": (alerts.JOB_STUCK, [RUNNING, series(SAMPLES, "0+9x10 90x50")], 22),
    "all shards": (alerts.SHARD_DOWN, [RUNNING, *shards("2x60")], 30),
    "shards start": (alerts.SHARD_DOWN, [EVALUATING, *shards("0x60")], 30),
    "shard restarts": (alerts.SHARD_DOWN, [RUNNING, *shards("2x5 1x2 2x30")], 10),
    "coordinator restarts": (
        alerts.COORDINATOR_DOWN,
        [series("up", "1x5 0x3 1x30", component="coordinator")],
        10,
    ),
    "coordinator of something else": (
        alerts.COORDINATOR_DOWN,
        [raw_series("up", "0x30", component="coordinator")],
        20,
    ),
    "replica away": (alerts.COORDINATOR_DOWN, [series("up", "0x30", component="replica")], 20),
    "recent checkpoints": (alerts.CHECKPOINT_TOO_OLD, [RUNNING, *checkpoints("0+60x60")], 40),
    "rare checkpoints": (
        alerts.CHECKPOINT_TOO_OLD,
        [RUNNING, *checkpoints("0x60", "3600x60")],
        40,
    ),
    "no checkpoints wanted": (
        alerts.CHECKPOINT_TOO_OLD,
        [RUNNING, *checkpoints("0x60", always("Inf"))],
        40,
    ),
    "before training": (alerts.CHECKPOINT_TOO_OLD, [RUNNING, *checkpoints(always("NaN"))], 40),
    "ended": (alerts.CHECKPOINT_TOO_OLD, [EVALUATING, *checkpoints("0x60")], 40),
    "one in a thousand": (alerts.STALENESS, staleness("0+99.1x60"), 25),
    "explained": (alerts.STALENESS, staleness("0+110x60", "100x60"), 25),
    "no pushes": (alerts.STALENESS, staleness("5x60"), 25),
    "few restarts": (alerts.RESTARTS, [series(RESTARTS, "0x5 3x30", role="shard")], 20),
    "operator answers": (alerts.OPERATOR_DOWN, [OPERATOR], 10),
    "operator restarts": (alerts.OPERATOR_DOWN, [OPERATOR], 14),
    "operator was taken away": (alerts.OPERATOR_DOWN, [OPERATOR, OTHER_OPERATOR], 90),
    "errors are over": (
        alerts.RECONCILE_ERRORS,
        [raw_series(ERRORS, "0x5 2x40", namespace="system", kind="Conflict")],
        12,
    ),
}


@pytest.mark.parametrize(
    ("alert", "data", "minute", "firing"), FIRING, ids=[case[0].name for case in FIRING]
)
def test_it_fires_and_says_for_what(
    tmp_path: Path, alert: Alert, data: list[dict[str, str]], minute: int, firing: Firing
) -> None:
    judge(tmp_path, alert, data, minute, firing)


@pytest.mark.parametrize(("alert", "data", "minute"), QUIET.values(), ids=list(QUIET))
def test_it_is_quiet(tmp_path: Path, alert: Alert, data: list[dict[str, str]], minute: int) -> None:
    judge(tmp_path, alert, data, minute, firing=None)


def test_every_alert_is_seen_firing_and_quiet() -> None:
    assert {case[0].name for case in FIRING} == {alert.name for alert in ALERTS}
    assert {case[0].name for case in QUIET.values()} == {alert.name for alert in ALERTS}
