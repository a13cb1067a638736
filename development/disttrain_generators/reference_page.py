"""The reference page of the manifest as Markdown, from its JSON schema and rules. Pure."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from disttrain.job import rules, section
from disttrain.job.fields import job_schema
from disttrain_generators import enum_values
from disttrain_generators.enum_values import ENUMS

Schema = dict[str, Any]
"""A JSON schema or a part of one."""

_HEAD = """\
# The manifest

<!-- Made by `make generate` from the types in `disttrain.job`; changes here are overwritten. -->

A manifest describes one job. `disttrain validate FILE...` checks it and says everything that is
wrong at once; `disttrain run FILE` runs it. Unknown fields are refused. `null` is the same as
leaving an optional field out, unless its default is another value: then `null` turns it off.
Numbers and booleans are written as in YAML 1.2, so `no` is a text and `1e-3` a number; a text
that looks like a number needs quotes.

Fields with *Kubernetes only* mean nothing to `disttrain run`, which names those that it finds.
`kubectl apply` takes every `null` away before it sends a manifest: a default that can be turned
off is turned off by 0, too.

Editors with the YAML language server complete and check a manifest whose first line is
`# yaml-language-server: $schema=disttrain-job.schema.json`; `disttrain schema` prints that schema.

```yaml
{example}```
"""

_OLDER_FORMS = """\
## Older forms

They are still read: in manifests, in folders of runs, and in jobs that a cluster stores. What
DistTrain writes has the present form. A job cannot be changed from one form to the other.

| form | means |
|---|---|
| `transport: tcp` | `transport: {kind: tcp}` |
"""

EXAMPLE = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata:
  name: digits
spec:
  task:
    entrypoint: digits:Digits
    arguments: {hidden: 256}
  strategy:
    downpour:
      optimizer:
        adagrad: {learningRate: 0.05}
      warmStart: {samples: 5000}
  batchSize: 32
  stop:
    epochs: 10
    targetMetric: {name: accuracy, atLeast: 0.97}
  parameterServer: {shards: 2}
  replicas: {count: 3}
"""


@dataclass(frozen=True, slots=True)
class _Section:
    path: str
    """Where the section is first met; its heading. Empty for the whole manifest."""
    name: str
    """Name of its type in the schema."""
    schema: Schema


@dataclass(frozen=True, slots=True)
class _Types:
    schemas: dict[str, Schema]
    """Schemas of the named types."""
    headings: dict[str, str]
    """Where each section's type is explained: the path that is its heading."""


def page() -> str:
    """Return the whole page, ending with one line feed."""
    schema = job_schema()
    sections = list(_sections(_Section("", "DistTrainJob", schema), schema["$defs"], set()))
    types = _Types(schema["$defs"], {section.name: section.path for section in sections})
    parts = [_HEAD.replace("{example}", EXAMPLE)]
    parts += [_section_text(section, types) for section in sections]
    return "\n".join([*parts, _rules_text(), _OLDER_FORMS])


def _sections(top: _Section, types: Schema, seen: set[str]) -> Iterator[_Section]:
    """Walk depth first, each type once, in the order of the fields."""
    seen.add(top.name)
    yield top
    for name, field in top.schema.get("properties", {}).items():
        target = _target_within(field)
        if target and target not in seen and "properties" in types[target]:
            path = f"{top.path}.{name}" if top.path else name
            yield from _sections(_Section(path, target, types[target]), types, seen)


def _target(field: Schema) -> str | None:
    """Return the name of the type that a field holds, if it is a type with a name."""
    options = [field, *field.get("anyOf", [])]
    return next((each["$ref"].rsplit("/", 1)[-1] for each in options if "$ref" in each), None)


def _target_within(field: Schema) -> str | None:
    """Return the name of the type that a field, or each item of a list, holds."""
    return _target(field) or _target(field.get("items", {}))


def _section_text(section: _Section, types: _Types) -> str:
    fields = section.schema.get("properties", {})
    required = section.schema.get("required", [])
    lines = [f"## {section.path or 'The whole'}", "", _one_line(section.schema["description"]), ""]
    if not fields:
        return "\n".join([*lines, "It has no fields and is written `{}`.", ""])
    lines += ["| field | value | default | meaning |", "|---|---|---|---|"]
    for name, field in fields.items():
        default = "**required**" if name in required else _default(field)
        cells = [f"`{name}`", _value(field, types), default, _meaning(field, types)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _meaning(field: Schema, types: _Types) -> str:
    target = types.schemas.get(_target_within(field) or "", {})
    # The schema leaves a field's text out where the type's text is the same.
    text = field.get("description") or target["description"]
    enum = next((enum for enum in ENUMS if enum.__name__ == target.get("title")), None)
    values = enum_values.meanings(enum) if enum else {}
    place = ["*Kubernetes only.*"] if section.is_marked(field) else []
    meanings = (f"`{value}`: {says}" for value, says in values.items())
    return " ".join([_one_line(text), *meanings, *place])


def _default(field: Schema) -> str:
    default = field.get("default", {} if field.get("type") == "object" else None)
    if not isinstance(default, dict):
        return f"`{json.dumps(default)}`"
    given = {name: value for name, value in default.items() if value is not None}
    return "see there" if len(given) > 1 else f"`{json.dumps(given)}`"


def _value(field: Schema, types: _Types) -> str:
    options = field.get("anyOf", [field])
    return " or ".join(_one_value(option, types) for option in options)


def _one_value(option: Schema, types: _Types) -> str:
    target = _target(option)
    if target:
        return _linked(target, types)
    if "const" in option:
        return f"`{option['const']}`"
    kind = _KINDS.get(option.get("type", ""), "any value")
    items = f" of: {_value(option['items'], types)}" if "items" in option else ""
    return f"{kind}{items}{_bounds(option)}"


def _linked(target: str, types: _Types) -> str:
    if target in types.headings:
        path = types.headings[target]
        return f"[section](#{path.replace('.', '').lower()})"
    values = types.schemas[target].get("enum", [])
    return ", ".join(f"`{value}`" for value in values) or "any value"


def _bounds(option: Schema) -> str:
    words = [f"{word} {option[key]}" for key, word in _BOUNDS.items() if key in option]
    return f", {', '.join(words)}" if words else ""


def _rules_text() -> str:
    lines = [f"- {rule.statement} ({rule.severity})" for rule in rules.RULES]
    return "\n".join(["## Rules between fields", "", *lines, ""])


def _one_line(text: str) -> str:
    return " ".join(text.split())


_KINDS = {
    "integer": "whole number",
    "number": "number",
    "boolean": "`true`, `false`",
    "string": "text",
    "object": "mapping",
    "array": "list",
    "null": "null",
}

_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}
