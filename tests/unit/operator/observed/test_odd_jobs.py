"""Jobs of any size and depth, as the API server stores them: an answer, never an error."""

import json
from typing import Any

import pytest

from builders import operator_jobs
from disttrain_operator import json_text
from disttrain_operator.json_text import Level
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.observed import parsing
from disttrain_operator.policies.problem import ProblemType
from disttrain_operator.reconcile import desired


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def text_of_job(arguments: str, **metadata: Any) -> bytes:
    spec = operator_jobs.spec(task={"entrypoint": "digits:Digits", "arguments": {"a": "HERE"}})
    body = {
        "metadata": {"namespace": "here", "name": "odd", "uid": "u", **metadata},
        "spec": spec,
        "status": {"phase": "Pending"},
    }
    return json.dumps(body).replace('"HERE"', arguments).encode()


def problems(text: bytes) -> list[str]:
    job = parsing.job(json_text.read_jobs(text, Level.OBJECT), frozenset())
    assert job.key.name == "odd"
    found = desired.of(job, ManifestConfig())
    assert desired.rendered(job, ManifestConfig()) == ""
    assert {problem.type for problem in found.problems} == {ProblemType.INVALID_MANIFEST}
    return [problem.message for problem in found.problems]


@pytest.mark.parametrize("levels", [51, 100, 252, 260, 300, 1_100, 9_000])
def test_a_job_of_any_depth_is_refused_with_a_condition(levels: int) -> None:
    (message,) = problems(text_of_job(nested(levels)))
    assert "levels" in message


def test_a_job_of_many_values_is_refused_with_a_condition() -> None:
    (message,) = problems(text_of_job(json.dumps([[1]] * 4_000)))
    assert "5000 values" in message


@pytest.mark.parametrize("size", [70_000, 200_000, 1_400_000])
def test_a_large_job_is_refused_with_a_condition(size: int) -> None:
    (message,) = problems(text_of_job(json.dumps("x" * size)))
    assert "65536 bytes" in message


def test_a_refused_job_is_kept_as_a_few_words() -> None:
    text = text_of_job(json.dumps([[1]] * 250_000))
    job = parsing.job(json_text.read_jobs(text, Level.OBJECT), frozenset())
    assert len(job.spec) < 200


def test_who_wrote_which_field_is_not_read_whatever_its_depth() -> None:
    text = text_of_job("1", managedFields=["HERE"]).replace(b'"HERE"', nested(5_000).encode())
    found = json_text.read_jobs(text, Level.OBJECT)
    assert found["metadata"]["name"] == "odd"
    assert found["spec"]["task"]["arguments"] == {"a": 1}


def test_what_looks_like_a_field_in_a_text_is_none() -> None:
    trap = json.dumps('","spec":{"[[[["\\')
    text = text_of_job(f"[{trap},{nested(2_000)}]")
    (message,) = problems(text)
    assert "levels" in message


def test_one_odd_job_leaves_the_others_of_its_list_as_they_are() -> None:
    odd, good = text_of_job(nested(5_000)), text_of_job('["fine", {"spec": [1]}]')
    text = b'{"metadata":{"resourceVersion":"7"},"items":[%s, %s, %s]}' % (good, odd, good)
    found = json_text.read_jobs(text, Level.LIST)
    assert found["metadata"] == {"resourceVersion": "7"}
    assert [isinstance(body["spec"], dict) for body in found["items"]] == [True, False, True]
    assert found["items"][0] == json.loads(good)


def test_an_event_of_a_watch_about_an_odd_job_keeps_its_version() -> None:
    object_text = text_of_job(nested(5_000), resourceVersion="12")
    text = b'{"type":"ADDED","object":%s}' % object_text
    found = json_text.read_jobs(text, Level.EVENT)
    assert found["type"] == "ADDED"
    assert found["object"]["metadata"]["resourceVersion"] == "12"


def test_a_status_that_somebody_filled_is_not_kept() -> None:
    text = text_of_job("1").replace(b'"Pending"', json.dumps([[1]] * 100_000).encode())
    job = parsing.job(json_text.read_jobs(text, Level.OBJECT), frozenset({"phase"}))
    assert job.status == {}


@pytest.mark.parametrize("levels", [100, 252, 254, 255, 300, 900])
def test_a_status_of_any_depth_leaves_the_job_in_sight(levels: int) -> None:
    text = text_of_job("1").replace(
        b'"status": {', b'"status": {"message": %s,' % nested(levels).encode()
    )
    job = parsing.job(json_text.read_jobs(text, Level.OBJECT), frozenset({"message", "phase"}))
    assert job.key.name == "odd"
    assert job.phase == "Pending"
    assert ("message" in job.status) == (levels < 254)


@pytest.mark.parametrize("text", [b"", b'{"a"', b'"' * 100_001, b"[" * 100_000, b"<html>"])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"line \d+ column \d+"):
        json_text.read_jobs(text, Level.OBJECT)
