"""Fields that say something about a cluster only, and the kinds of texts that they hold."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

from disttrain.job.section import refused

_MARK = "x-disttrain-cluster-only"

ON_A_CLUSTER: JsonDict = {_MARK: True}
"""The `json_schema_extra` of a field that means nothing to a job on one machine."""

OBJECT_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
LONGEST_OBJECT_NAME = 253

QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?([KMGTPE]i|[kMGTPE])?$"
LONGEST_QUANTITY = 32


def is_on_a_cluster(field: FieldInfo) -> bool:
    """Whether a field, with all that is in it, means nothing to a job on one machine."""
    return is_marked(field.json_schema_extra)


def is_marked(schema: Any) -> bool:
    """Whether the schema of a field, or what was added to it, has the mark."""
    return isinstance(schema, dict) and schema.get(_MARK) is True


def _is_object_name(name: str) -> str:
    if len(name) <= LONGEST_OBJECT_NAME and re.fullmatch(OBJECT_NAME_PATTERN[1:-1], name):
        return name
    raise refused(
        "must be the name of a Kubernetes object: a-z, 0-9, '-' and '.', at most "
        f"{LONGEST_OBJECT_NAME} characters, got '{name}'"
    )


def _is_quantity(quantity: str) -> str:
    if len(quantity) <= LONGEST_QUANTITY and re.fullmatch(QUANTITY_PATTERN[1:-1], quantity):
        return quantity
    raise refused(f"must be an amount of bytes such as 10Gi or 500M, got '{quantity}'")


ObjectName = Annotated[
    str,
    AfterValidator(_is_object_name),
    Field(
        min_length=1,
        json_schema_extra={"pattern": OBJECT_NAME_PATTERN, "maxLength": LONGEST_OBJECT_NAME},
    ),
]
"""The name of an object in the job's namespace."""

Quantity = Annotated[
    str,
    AfterValidator(_is_quantity),
    Field(json_schema_extra={"pattern": QUANTITY_PATTERN, "maxLength": LONGEST_QUANTITY}),
]
"""An amount of bytes as Kubernetes writes it."""
