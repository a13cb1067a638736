"""The user's class: what it is called, and where its code comes from."""

from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue
from pydantic_core import PydanticCustomError

from disttrain.job.cluster_field import ON_A_CLUSTER, ObjectName
from disttrain.job.section import Choice, Section

ENTRYPOINT_PATTERN = r"^[^\s:]+:[^\s:.]+$"
"""What can be said about an entrypoint without Python's own rules for identifiers."""


def _is_entrypoint(entrypoint: str) -> str:
    module, separator, class_name = entrypoint.partition(":")
    if separator and class_name.isidentifier() and all(map(str.isidentifier, module.split("."))):
        return entrypoint
    raise PydanticCustomError(
        "bad_entrypoint",
        "must be 'module:Class', for example digits:Digits, got '{entrypoint}'",
        {"entrypoint": entrypoint},
    )


class TaskSource(Choice[str]):
    """Where the code of the task comes from on a cluster."""

    config_map: ObjectName | None = None
    """Name of a ConfigMap in the job's namespace; its keys are the files of the code."""


class TaskReference(Section):
    """The user's class."""

    entrypoint: Annotated[str, AfterValidator(_is_entrypoint)] = Field(
        examples=["digits:Digits"],
        json_schema_extra={"pattern": ENTRYPOINT_PATTERN, "maxLength": 500},
    )
    """`module:Class` of the task. The module is looked up in the manifest's folder first."""

    arguments: dict[str, JsonValue] = Field(default_factory=dict, max_length=200)
    """Keyword arguments of the class."""

    source: TaskSource | None = Field(default=None, json_schema_extra=ON_A_CLUSTER)
    """Where the code comes from. null: it is in the image."""
