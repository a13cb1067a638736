"""The JSON schema of a type, as pydantic makes it, to a structural schema of Kubernetes. Pure.

A structural schema has no references and no alternatives: what may be null says so, free mappings
keep what nobody describes, and a default is what is left after the defaults within it.
"""

from typing import Any, Final

from pydantic import BaseModel

from disttrain.job.fields import WithoutFieldTitles
from disttrain_generators import admission_rules

Schema = dict[str, Any]
"""A JSON schema or a part of one."""

VALIDATIONS: Final = "x-kubernetes-validations"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"

_FREE: Final = {"x-kubernetes-preserve-unknown-fields": True}
_SHORT: Final = "short form"
"""In a schema that is being converted: the texts that may stand in the place of a mapping."""
_INT64_MAX: Final = 2**63 - 1
_COPIED: Final = (
    "type",
    "format",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
)


def of_type(model: type[BaseModel]) -> Schema:
    """Return the structural schema of a type."""
    schema = model.model_json_schema(schema_generator=WithoutFieldTitles)
    return _Converter(schema.get("$defs", {})).convert(schema)


def with_later_fields(schema: Schema) -> Schema:
    """Return the schema with room for fields that a later version has in its objects."""
    made = dict(schema)
    if "properties" in schema:
        inner = {name: with_later_fields(each) for name, each in schema["properties"].items()}
        made |= {"properties": inner, **_FREE}
    if "items" in schema:
        made["items"] = with_later_fields(schema["items"])
    return made


class _Converter:
    """Converts schemas that refer to the same definitions."""

    def __init__(self, definitions: dict[str, Schema]) -> None:
        self._definitions = definitions

    def convert(self, schema: Schema) -> Schema:
        resolved = self._without_references(schema)
        if resolved.get(INT_OR_STRING):
            return {**_described(resolved), INT_OR_STRING: True, **_default(resolved)}
        if _SHORT in resolved:
            return self._mapping_or_text(resolved)
        if not _says_something(resolved):
            return {**_described(resolved), **_FREE}
        made = _described(resolved)
        made |= {key: resolved[key] for key in _COPIED if _is_copied(key, resolved)}
        made |= _kind_of_constant(resolved) | _bounds(resolved) | _list_type(resolved)
        made |= self._inner(resolved)
        validations = admission_rules.of_section(resolved)
        if validations:
            # They do not count null, as the number of properties would.
            made.pop("maxProperties", None)
            made[VALIDATIONS] = validations
        if resolved.get("nullable"):
            made["nullable"] = True
        default = resolved.get("default")
        return made if default is None else {**made, "default": trimmed(default, made)}

    def _mapping_or_text(self, schema: Schema) -> Schema:
        """Without a type, which can be only one. What follows holds for the values that it fits.

        Without a default, too: an older definition, to which somebody may go back, knows no mapping
        here.
        """
        pattern = f"^({'|'.join(schema[_SHORT])})$"
        return {**_described(schema), **_FREE, "pattern": pattern, **self._inner(schema)}

    def _without_references(self, schema: Schema) -> Schema:
        """Put what a reference means in its place; what is said beside it comes first."""
        merged = dict(schema)
        while "$ref" in merged or "anyOf" in merged:
            target = self._alternative(merged)
            beside = {k: v for k, v in merged.items() if k not in {"$ref", "anyOf"}}
            merged = {**target, **beside}
        return merged

    def _alternative(self, schema: Schema) -> Schema:
        if "$ref" in schema:
            return self._definitions[schema["$ref"].rsplit("/", 1)[-1]]
        others = [each for each in schema["anyOf"] if each.get("type") != "null"]
        if {each.get("type") for each in others} == {"integer", "string"}:
            return {INT_OR_STRING: True}
        if len(others) == 2 and others[0].get("$ref", "") and others[1].get("$ref", ""):
            mapping, text = map(self._without_references, others)
            return {**mapping, _SHORT: text["enum"]}
        if len(others) != 1:
            message = f"only null may be an alternative, got {schema['anyOf']}"
            raise ValueError(message)
        return {**others[0], "nullable": True} if len(schema["anyOf"]) > 1 else others[0]

    def _inner(self, schema: Schema) -> Schema:
        inner: Schema = {}
        if "properties" in schema:
            inner["properties"] = {
                name: self.convert(each) for name, each in schema["properties"].items()
            }
        if "items" in schema:
            inner["items"] = self.convert(schema["items"])
        others = schema.get("additionalProperties")
        if isinstance(others, dict):
            values = self.convert(others)
            inner |= _FREE if values == _FREE else {"additionalProperties": values}
        elif others is True:
            inner |= _FREE
        return inner


def trimmed(default: Any, schema: Schema) -> Any:
    """Return a default without what the defaults within it say already."""
    if not isinstance(default, dict) or "properties" not in schema:
        return default
    inner = {
        name: trimmed(value, schema["properties"][name])
        for name, value in default.items()
        if value is not None
    }
    return {
        name: value
        for name, value in inner.items()
        if "default" not in schema["properties"][name]
        or schema["properties"][name]["default"] != value
    }


def _default(schema: Schema) -> Schema:
    return {"default": schema["default"]} if "default" in schema else {}


def _says_something(schema: Schema) -> bool:
    return any(key in schema for key in ("type", "enum", "const"))


def _is_copied(key: str, schema: Schema) -> bool:
    # The API server keeps bounds as floats: this one becomes 2**63, which it reads as negative.
    return key in schema and (key, schema[key]) != ("maximum", _INT64_MAX)


def _described(schema: Schema) -> Schema:
    text = schema.get("description")
    return {"description": " ".join(text.split())} if text else {}


def _kind_of_constant(schema: Schema) -> Schema:
    return {"enum": [schema["const"]]} if "const" in schema else {}


def _bounds(schema: Schema) -> Schema:
    """Exclusive bounds as OpenAPI 3.0 has them, and whole numbers with their size."""
    made: Schema = {}
    for side, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if exclusive in schema:
            made |= {side: schema[exclusive], exclusive: True}
    if schema.get("type") != "integer":
        return made
    return {**made, "format": "int64"}


def _list_type(schema: Schema) -> Schema:
    keys = schema.get("x-kubernetes-list-map-keys")
    if keys:
        return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}
    return {"x-kubernetes-list-type": "atomic"} if schema.get("type") == "array" else {}
