"""What people are told of a job by Events: each thing once, whoever tells it again."""

from datetime import timedelta
from typing import Any

import pytest

from builders.operator_jobs import KEY, NOW, UID, job
from disttrain_operator import times
from disttrain_operator.reconcile import events


def status(phase: str, *holding: tuple[str, str], **lapsed: str) -> dict[str, Any]:
    """A status with conditions that hold, by type and reason, and some that do not."""
    found = [(kind, "True", reason) for kind, reason in holding]
    found += [(kind, "False", reason) for kind, reason in lapsed.items()]
    conditions = [
        {
            "type": kind,
            "status": holds,
            "reason": reason,
            "message": f"{reason} it is",
            "lastTransitionTime": times.text(NOW),
        }
        for kind, holds, reason in found
    ]
    return {"phase": phase, "conditions": conditions}


def told(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str]]:
    made = events.of(job({"status": before}), after, NOW)
    return [(each["reason"], each["type"]) for each in made]


@pytest.mark.parametrize(
    ("before", "after", "news"),
    [
        ({}, status("Pending"), []),
        (status("Pending"), status("Running"), []),
        (status("Running"), status("Running"), []),
        (
            status("Running"),
            status("Complete", ("Complete", "EpochsDone")),
            [("Complete", "Normal")],
        ),
        (status("Running"), status("Failed", ("Failed", "Diverged")), [("Failed", "Warning")]),
        (
            status("Pending"),
            status("Pending", ("CannotStart", "ImagePullBackOff")),
            [("ImagePullBackOff", "Warning")],
        ),
        (
            status("Pending", ("CannotStart", "ImagePullBackOff")),
            status("Pending", ("CannotStart", "ImagePullBackOff")),
            [],
        ),
        (
            status("Pending", ("CannotStart", "ImagePullBackOff")),
            status("Pending", ("CannotStart", "Unschedulable")),
            [("Unschedulable", "Warning")],
        ),
        (
            status("Running"),
            status("Suspended", ("Suspended", "Suspended")),
            [("Suspended", "Normal")],
        ),
        (
            status("Suspended", ("Suspended", "Suspended")),
            status("Pending", Suspended="NotSuspended"),
            [("Resumed", "Normal")],
        ),
    ],
)
def test_what_begins_to_hold_is_told(
    before: dict[str, Any], after: dict[str, Any], news: list[tuple[str, str]]
) -> None:
    assert told(before, after) == news


def test_warnings_of_the_manifest_are_told_with_the_first_status_alone() -> None:
    warnings = ("spec.stop: it may never end", "spec.image: it is old")

    (warned,) = events.of(job(), status("Pending"), NOW, warnings)

    assert (warned["reason"], warned["type"]) == ("ManifestWarning", "Warning")
    assert warned["message"] == "spec.stop: it may never end; spec.image: it is old"
    before = job({"status": status("Pending")})
    assert events.of(before, status("Running"), NOW, warnings) == []


def test_each_time_that_keys_were_replaced_is_told() -> None:
    first, again, other = (
        events.new_keys(job(), uid, NOW)["metadata"]["name"] for uid in ("a", "a", "b")
    )
    assert first == again != other


def test_told_again_an_event_has_the_name_it_had() -> None:
    after = status("Complete", ("Complete", "EpochsDone"))
    (first,) = events.of(job(), after, NOW)
    (again,) = events.of(job(), after, NOW + timedelta(hours=1))
    (later,) = events.of(job({"generation": 2}), after, NOW)
    (other,) = events.of(job({"uid": "another"}), after, NOW)

    names = [each["metadata"]["name"] for each in (first, again, later, other)]
    assert names[0] == names[1]
    assert len(set(names)) == 3
    assert first["involvedObject"]["uid"] == UID
    assert first["metadata"]["namespace"] == KEY.namespace


def test_a_long_message_keeps_its_end() -> None:
    after = status("Failed", ("Failed", "Diverged"))
    after["conditions"][0]["message"] = "x" * 3000 + " the end"

    (event,) = events.of(job({"status": status("Running")}), after, NOW)

    assert len(event["message"]) <= 1024
    assert event["message"].endswith(" the end")
