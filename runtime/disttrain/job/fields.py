"""What the types say about a path of the manifest: fields, nearest names; and the JSON schema."""

import json
from typing import Any, get_args

from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from disttrain.job.finding import Path
from disttrain.job.section import Section
from disttrain.job.spec import DistTrainJob

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def by_name(section: type[Section]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in section.model_fields.items()}


def section_of(field: FieldInfo) -> type[Section] | None:
    """Return the section that a field holds, or None for every other kind of value."""
    candidates: tuple[Any, ...] = (field.annotation, *get_args(field.annotation))
    for candidate in candidates:
        if isinstance(candidate, type) and issubclass(candidate, Section):
            return candidate
    return None


def section_at(path: Path) -> type[Section] | None:
    """Return the section at a path, or None if there is no section there."""
    section: type[Section] | None = DistTrainJob
    for part in path:
        field = by_name(section).get(str(part)) if section else None
        section = section_of(field) if field else None
    return section


def field_at(path: Path) -> FieldInfo | None:
    """Return the field at a path, or None if no section has such a field."""
    section = section_at(path[:-1])
    return by_name(section).get(str(path[-1])) if section and path else None


class WithoutFieldTitles(GenerateJsonSchema):
    """Leaves out titles such as `Pushevery`, which editors would show instead of the name."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - pydantic's hook.
        """Whether a field has a title: none has."""
        return False


def job_schema() -> JsonSchemaValue:
    """Return the schema; it knows fields, types and bounds, but not the rules between fields."""
    schema = DistTrainJob.model_json_schema(schema_generator=WithoutFieldTitles)
    return {"$schema": DIALECT, **schema}


def schema_text() -> str:
    return json.dumps(job_schema(), indent=2) + "\n"
