"""The JSON schema says what the parser says about single fields."""

from typing import Any

import pytest
import yaml

from builders.jobs import SMALL, a_job
from disttrain.job.document import read
from disttrain.job.fields import job_schema
from disttrain.job.parsing import parse_job
from disttrain_generators.reference_page import EXAMPLE

KINDS: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "string": (str,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def accepts(schema: dict[str, Any], value: object, root: dict[str, Any]) -> bool:
    """Return whether a schema accepts a value; references are looked up in the root."""
    if "$ref" in schema:
        return accepts(root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], value, root)
    if "anyOf" in schema:
        return any(accepts(option, value, root) for option in schema["anyOf"])
    if not _is_of_kind(schema.get("type"), value):
        return False
    if isinstance(value, dict):
        return _accepts_mapping(schema, value, root)
    if isinstance(value, list):
        return all(accepts(schema.get("items", {}), item, root) for item in value)
    return _accepts_scalar(schema, value)


def _is_of_kind(kind: str | None, value: object) -> bool:
    if kind is None:
        return True
    return isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _accepts_mapping(schema: dict[str, Any], value: dict[str, Any], root: dict[str, Any]) -> bool:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    if not set(schema.get("required", [])) <= set(value):
        return False
    if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", 10**9):
        return False
    if others is False and not set(value) <= set(known):
        return False
    return all(accepts(known.get(name, others), item, root) for name, item in value.items())


def _accepts_scalar(schema: dict[str, Any], value: Any) -> bool:
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        return False
    if not isinstance(value, int | float):
        return True
    inside = schema.get("minimum", value) <= value <= schema.get("maximum", value)
    above = value > schema["exclusiveMinimum"] if "exclusiveMinimum" in schema else True
    return inside and above


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


@pytest.mark.parametrize("value", ["tcp", "{kind: tcp}", "{encryption: none}", "{}"])
def test_a_short_form_is_accepted_beside_its_section(value: str) -> None:
    assert schema_accepts(f"{SMALL}  transport: {value}\n")


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
        ("batchSize: 32", "batchSize: 32\n  transport: udp"),
        ("batchSize: 32", "batchSize: 32\n  transport: {encryption: off}"),
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
