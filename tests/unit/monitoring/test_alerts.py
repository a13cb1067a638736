"""The alerts say what is wrong, how bad it is and what to do."""

import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from disttrain_monitoring import rules
from disttrain_monitoring.alerts import ALERTS, Alert

ROOT: Final = Path(__file__).parents[3]
EVERY = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)


def sections() -> dict[str, str]:
    """The page of alerts, by heading."""
    _, *found = re.split(r"^## ", (ROOT / rules.RUNBOOK).read_text(), flags=re.MULTILINE)
    return {each.partition("\n")[0]: each.partition("\n")[2].strip() for each in found}


@EVERY
def test_an_alert_has_a_section_with_a_remedy(alert: Alert) -> None:
    assert len(sections()[alert.name].split()) > 30
    assert rules.runbook(alert) == f"docs/alerts.md#{alert.name.lower()}"


def test_the_page_has_no_section_of_an_alert_that_is_gone() -> None:
    assert sorted(sections()) == sorted(alert.name for alert in ALERTS)


@EVERY
def test_an_alert_says_what_is_wrong_and_what_to_do(alert: Alert) -> None:
    assert alert.summary.endswith(".")
    assert alert.means.endswith(".")
    assert len(alert.means.split()) > 15


@EVERY
def test_texts_name_only_labels_that_the_expression_leaves(alert: Alert) -> None:
    used = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.means))
    kept = set(re.findall(r"\w+", "".join(re.findall(r"by \(([^)]*)\)", alert.value))))
    # A plain series keeps all of its labels.
    assert used <= kept or " by " not in f" {alert.value}"


def test_a_rule_has_what_prometheus_and_its_operator_take() -> None:
    found = yaml.safe_load(rules.as_yaml())

    assert list(found) == ["groups"]
    for rule in found["groups"][0]["rules"]:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
