"""The custom resource's definition: structural, small, bounded, and the same as the types."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from builders import update_rules
from disttrain.job import fields
from disttrain_generators import admission_rules, crd, crd_file
from disttrain_generators.structural_schema import INT_OR_STRING, VALIDATIONS, trimmed

KUBECTL_ANNOTATION_LIMIT = 200_000

Schema = dict[str, Any]


def whole() -> Schema:
    (version,) = crd.definition()["spec"]["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


def spec() -> Schema:
    inner: Schema = whole()["properties"]["spec"]
    return inner


def every(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from every(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if word in schema:
            yield from every(schema[word], f"{path}[]")


def test_the_definition_is_read_back_from_both_files() -> None:
    for text in (crd_file.plain(), crd_file.template()):
        assert yaml.safe_load(text) == crd.definition()


def test_kubectl_can_keep_the_definition_in_an_annotation() -> None:
    kept = json.dumps(crd.definition(), separators=(",", ":"))
    assert len(kept.encode()) < KUBECTL_ANNOTATION_LIMIT


def test_braces_in_a_text_are_no_action_of_the_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crd, "definition", lambda: {"description": "{{ .Values.x }}"})
    lines = crd_file.template().splitlines(keepends=True)
    rendered = "".join(line for line in lines if not line.startswith("# {{"))
    rendered = rendered.replace('{{ "{{" }}', "{{")
    assert "{{ .Values.x }}" not in crd_file.template()
    assert rendered == crd_file.plain()


def test_the_schema_is_structural() -> None:
    unknown = {"$ref", "$defs", "anyOf", "oneOf", "const", "title", "examples"}
    assert [path for path, each in every(whole()) if unknown & set(each)] == []
    silent = [
        path
        for path, each in every(whole())
        if "type" not in each
        and "x-kubernetes-preserve-unknown-fields" not in each
        and INT_OR_STRING not in each
    ]
    assert silent == []


def test_a_status_may_have_fields_of_a_later_version_and_a_spec_may_not() -> None:
    def closed(schema: Schema) -> list[str]:
        known = [(path, each) for path, each in every(schema) if "properties" in each]
        return [path for path, each in known if "x-kubernetes-preserve-unknown-fields" not in each]

    assert closed(whole()["properties"]["status"]) == []
    assert "" in closed(spec())


def test_every_field_is_described() -> None:
    server = {"", ".apiVersion", ".kind", ".metadata"}
    silent = [path for path, each in every(whole()) if "description" not in each]
    assert [path for path in silent if path not in server and not path.endswith("[]")] == []


def test_every_field_of_the_manifest_is_in_the_schema() -> None:
    paths = {path for path, _ in every(spec())}
    section = fields.section_at(("spec",))
    assert section is not None
    assert {f".{name}" for name in fields.by_name(section)} <= paths


def test_optional_fields_may_be_null() -> None:
    properties = spec()["properties"]
    assert properties["portionSize"]["nullable"] is True
    assert properties["evaluation"]["nullable"] is True
    assert "nullable" not in properties["seed"]


def test_defaults_are_those_of_the_types() -> None:
    properties = spec()["properties"]
    assert properties["replicas"]["default"] == {}
    assert properties["replicas"]["properties"]["count"]["default"] == 1
    assert properties["coordinator"]["properties"]["leaseSeconds"]["default"] == 30.0
    assert properties["record"]["default"] is False


def test_a_number_that_another_field_may_say_has_no_default() -> None:
    """The API server would write it beside that field before anybody reads the job."""
    replicas = spec()["properties"]["replicas"]
    assert replicas["default"] == {}
    partitions = replicas["properties"]["partitions"]
    assert "default" not in partitions
    assert partitions["nullable"] is True


def test_a_section_with_a_short_form_has_no_type_and_no_default() -> None:
    """The one would refuse stored objects, the other what an older definition knows."""
    transport = spec()["properties"]["transport"]
    assert not {"type", "default"} & transport.keys()
    assert transport["pattern"] == "^(auto|tcp|sharedMemory)$"
    assert transport["properties"]["encryption"]["enum"] == ["tls", "none"]
    assert transport["properties"]["encryption"]["default"] == "tls"


def test_a_default_says_only_what_the_defaults_within_do_not_say() -> None:
    inner = {"properties": {"a": {"default": 1}, "b": {"default": 2}, "c": {}}}
    assert trimmed({"a": 1, "b": 3, "c": None}, inner) == {"b": 3}


def test_bounds_are_those_of_the_types() -> None:
    properties = spec()["properties"]
    assert properties["replicas"]["properties"]["count"]["maximum"] == 4096
    lease = properties["coordinator"]["properties"]["leaseSeconds"]
    assert (lease["minimum"], lease["exclusiveMinimum"]) == (0, True)
    assert properties["parameterServer"]["properties"]["durability"]["enum"] == [
        "none",
        "checkpoint",
    ]


def test_what_the_rules_look_at_has_an_upper_bound() -> None:
    limits = {"string": {"maxLength", "enum"}, "array": {"maxItems"}}
    unbounded = [
        path
        for path, each in every(spec())
        if each.get("type") in limits and not limits[each["type"]] & set(each)
    ]
    assert unbounded == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("strategy", "must have exactly one of downpour, localSteps, sandblaster"),
        (
            "strategy.downpour.optimizer",
            f"must have exactly one of {update_rules.NAMES}",
        ),
        ("strategy.sandblaster.warmStart", "must have exactly one of downpour, sgd"),
        ("stop.targetMetric", "must have exactly one of atLeast, atMost"),
        ("checkpoint.volume", "must have exactly one of claimName, size"),
        (
            "stop",
            "must have at least one of epochs, steps, iterations, samples, seconds, targetMetric, "
            "patience",
        ),
    ],
)
def test_choices_are_rules_of_the_api_server(path: str, message: str) -> None:
    schema = spec()
    for name in path.split("."):
        schema = schema["properties"][name]
    assert [rule["message"] for rule in schema[VALIDATIONS]] == [message]
    assert not {"minProperties", "maxProperties"} & set(schema)


def test_what_may_change_is_what_is_promised() -> None:
    (rule,) = (each for each in admission_rules.of_spec(spec()) if "oldSelf" in each["rule"])
    fixed, _, changeable = rule["rule"].rpartition(" && !((")
    comparison = r" self\.([\w.]+) == oldSelf\.\1\)"
    unchanged = set(re.findall(comparison, fixed))
    named = set(re.findall(r" \? '([\w.]+)'", rule["messageExpression"]))
    roles = ("coordinator", "parameterServer", "replicas")
    inside = {
        f"{role}.{name}" for role in roles for name in spec()["properties"][role]["properties"]
    }
    names = (set(spec()["properties"]) - set(roles)) | inside
    may = {"replicas.count", "suspend", "activeDeadlineSeconds", "ttlSecondsAfterFinished"}
    assert names - unchanged == {*may, "transport"}
    suspended = re.findall(
        r"self\.suspend \|\| oldSelf\.suspend \|\| \(has\(self\.([\w.]+)\)", rule["rule"]
    )
    templates = {f"{role}.template" for role in roles}
    assert set(suspended) == templates
    assert named == unchanged
    # What has no type is not seen: it has changed if all that may change is as it was.
    assert set(re.findall(comparison, changeable)) == may | templates
    assert " : 'transport')" in rule["messageExpression"]


def test_errors_between_sections_are_rules_and_warnings_are_not() -> None:
    between = [rule for rule in admission_rules.of_spec(spec()) if "oldSelf" not in rule["rule"]]
    assert len(between) == 13
    assert "`" not in "".join(rule["message"] for rule in between)


def test_kubectl_shows_and_scales_jobs() -> None:
    (version,) = crd.definition()["spec"]["versions"]
    assert version["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicas.count",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    columns = [
        each["name"] for each in version["additionalPrinterColumns"] if not each.get("priority")
    ]
    assert columns == ["Phase", "Strategy", "Shards", "Replicas", "Progress", "Measure", "Age"]
    paths = {each["name"]: each["jsonPath"] for each in version["additionalPrinterColumns"]}
    # For people: there are numbers of the same things, too.
    assert paths["Samples/s"] == ".status.training.speed"
    assert paths["Loss"] == ".status.training.recentLoss"


def test_columns_show_fields_that_there_are() -> None:
    (version,) = crd.definition()["spec"]["versions"]
    known = {path for path, _ in every(whole())} | {".metadata.creationTimestamp"}
    paths = {column["jsonPath"] for column in version["additionalPrinterColumns"]}
    paths |= set(version["subresources"]["scale"].values())
    assert paths <= known
