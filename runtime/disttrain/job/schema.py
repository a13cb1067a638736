"""The JSON schema of a manifest, from its types, for editors. Pure."""

import json

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from disttrain.job.spec import DistTrainJob

DIALECT = "https://json-schema.org/draft/2020-12/schema"


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
    """Return the schema as it is printed and written to files."""
    return json.dumps(job_schema(), indent=2) + "\n"
