"""The JSON schema says what the parser says about single fields."""

import pytest
import yaml

from builders.jobs import SMALL, a_job
from builders.json_schema import accepts
from disttrain.job.document import read
from disttrain.job.fields import job_schema
from disttrain.job.parsing import parse_job
from disttrain_generators.reference_page import EXAMPLE


def schema_accepts(text: str) -> bool:
    (document,) = read(text)
    return accepts(job_schema(), document.value, job_schema())


@pytest.mark.parametrize("text", [SMALL, EXAMPLE])
def test_good_manifests_are_accepted_by_schema_and_parser(text: str) -> None:
    parse_job(text)
    assert schema_accepts(text)


def test_a_dumped_job_is_accepted_where_unused_options_are_left_out() -> None:
    dumped = a_job().model_dump(mode="json", by_alias=True, exclude_none=True)
    assert schema_accepts(yaml.safe_dump(dumped))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("batchSize: 32", "batchSize: 0"),
        ("batchSize: 32", "batchSize: '3'"),
        ("batchSize: 32", "batchSize: 32\n  paused: true"),
        ("batchSize: 32", "batchSize: 32\n  replicas: {device: gpu}"),
        ("learningRate: 0.1", "learningRate: 0"),
        ("optimizer: {sgd: {learningRate: 0.1}}", "optimizer: {}"),
        ("v1alpha1", "v2"),
    ],
)
def test_bad_fields_are_refused_by_the_schema_too(old: str, new: str) -> None:
    assert old in SMALL
    assert not schema_accepts(SMALL.replace(old, new))


def test_every_field_has_a_text() -> None:
    types = job_schema()["$defs"]
    silent = [
        f"{name}.{field}"
        for name, definition in types.items()
        for field, schema in definition.get("properties", {}).items()
        # A reference without a text of its own shows the text of its type.
        if "description" not in schema and "$ref" not in schema
    ]
    assert silent == []


def test_every_type_has_a_text() -> None:
    types = job_schema()["$defs"]
    assert [name for name, each in types.items() if "description" not in each] == ["JsonValue"]
