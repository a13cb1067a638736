"""Job objects that an earlier version kept: this one's operator and commands understand them."""

import json
from pathlib import Path
from typing import Any

import pytest

from disttrain.job import validation
from disttrain.job.status import JobStatus
from disttrain_operator.observed import parsing
from disttrain_operator.reconcile import report
from golden import found

JOBS = sorted(Path(found.__file__).parent.glob("v*/jobs/*.json"))


def objects(moment: str) -> list[Any]:
    chosen = [path for path in JOBS if path.stem.endswith(moment)]
    return [pytest.param(json.loads(path.read_text()), id=path.stem) for path in chosen]


@pytest.mark.parametrize("body", objects("running") + objects("complete"))
def test_the_spec_is_valid_and_the_record_says_what_the_object_does(body: dict[str, Any]) -> None:
    checked = validation.validate({key: body[key] for key in body if key != "status"})
    record = parsing.job(body, report.FIELDS)

    assert checked.job is not None, checked.findings
    assert record.phase == body["status"]["phase"]
    assert record.strategy == body["status"]["strategy"]
    assert json.loads(record.spec) == body["spec"]
    written = json.loads(record.written)
    assert written == {name: body["status"][name] for name in written}
    assert {"conditions", "phase", "restarts"} <= written.keys()


@pytest.mark.parametrize("body", objects("running"))
def test_what_coordinator_and_operator_said_of_a_running_job_is_read(body: dict[str, Any]) -> None:
    status = JobStatus.model_validate(body["status"])

    said = body["status"]
    assert status.training is not None
    assert status.training.samples == said["training"]["samples"]
    assert status.checkpoint is not None
    assert json.loads(status.checkpoint.model_dump_json(by_alias=True)).keys() >= (
        said["checkpoint"].keys()
    )
    assert parsing.job(body, report.FIELDS).training
    assert parsing.job(body, report.FIELDS).outcome is None


@pytest.mark.parametrize("body", objects("complete"))
def test_the_end_of_a_job_is_known_from_its_status(body: dict[str, Any]) -> None:
    outcome = parsing.job(body, report.FIELDS).outcome

    assert outcome is not None
    assert (outcome.phase, outcome.reason, outcome.message) == ("Complete", "Epochs", "4 epochs")
