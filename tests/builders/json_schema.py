"""The part of JSON schema that the manifest's schema uses, enough to check a value in a test."""

from typing import Any

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
