"""What every part of a manifest has in common: strict, frozen, camelCase outside, documented."""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    create_model,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

MOST = 10**15
"""More of anything is a slip of the hand, and products of two would leave 64 bits far behind."""

Count = Annotated[int, Field(ge=1, le=MOST)]
"""A whole number of at least 1."""

WholeNumber = Annotated[int, Field(ge=0)]
"""A whole number of at least 0."""

Positive = Annotated[float, Field(gt=0, le=MOST)]
"""A number above 0. Beyond `MOST` products of two would leave float32."""

NotNegative = Annotated[float, Field(ge=0, le=MOST)]
"""A number of at least 0, at most `MOST`."""


def _none_for_zero(value: float | None) -> float | None:
    return value or None


ZERO_IS_NONE = AfterValidator(_none_for_zero)
"""Turns a default off by a number: `kubectl apply` takes every null out of a manifest."""

Fraction = Annotated[float, Field(ge=0, le=1)]
"""A number from 0 to 1."""

Part = Annotated[float, Field(gt=0, le=1)]
"""A number above 0, at most 1."""

_MARK = "x-disttrain-cluster-only"

ON_A_CLUSTER: JsonDict = {_MARK: True}
"""The `json_schema_extra` of a field that means nothing to a job on one machine."""

OBJECT_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
LONGEST_OBJECT_NAME = 253

QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?([KMGTPE]i|[kMGTPE])?$"
LONGEST_QUANTITY = 32

EXACTLY_ONE = "x-disttrain-exactly-one"
"""In a section's schema: the fields of which exactly one must be given; null is not given."""

FIELDS_ONLY = "fields only"
"""The context of a validation that asks no section for its problem."""


def refused(message: str) -> PydanticCustomError:
    """Return the error of a field or a section, for its validator to raise."""
    return PydanticCustomError("refused", "{message}", {"message": message})


def _schema(schema: JsonDict, section: type[Any]) -> None:
    if section.alternatives:
        schema[EXACTLY_ONE] = list(section.alternatives)


class Section(BaseModel):
    """A mapping of the manifest."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
        json_schema_extra=_schema,
    )

    alternatives: ClassVar[tuple[str, ...]] = ()
    # Fields of which exactly one must be given, as the manifest names them.

    short_form: ClassVar[str] = ""
    # The field that a text in the section's place stands for; empty: a text is refused.

    def problem(self) -> str | None:
        """What is wrong with the direct fields together, each of which is right; None: nothing."""
        return _not_one(self.given(), self.alternatives) if self.alternatives else None

    def given(self) -> dict[str, Any]:
        """Return the values of the fields, as the manifest names them; null is not given."""
        fields = type(self).model_fields.items()
        values = {field.alias or name: getattr(self, name) for name, field in fields}
        return {alias: value for alias, value in values.items() if value is not None}

    @model_validator(mode="after")
    def _has_no_problem(self, info: ValidationInfo) -> Self:
        problem = None if info.context == FIELDS_ONLY else self.problem()
        if problem is not None:
            raise refused(problem)
        return self


Chosen = TypeVar("Chosen")


class Choice(Section, Generic[Chosen]):
    """A section of which exactly one field is given; null counts as not given."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    @property
    def rule(self) -> Chosen:
        chosen: Chosen = next(iter(self.given().values()))
        return chosen

    def problem(self) -> str | None:
        given = self.given()
        names = {name: field.alias or name for name, field in type(self).model_fields.items()}
        nulls = [alias for name, alias in names.items() if name in self.model_fields_set]
        problem = _not_one(given, tuple(names.values()))
        if given or not nulls:
            return problem
        return f"{problem}: {nulls[0]} is null; a section of defaults is {nulls[0]}: {{}}"


def one_of(*options: tuple[str, type[Chosen], str]) -> type[Choice[Chosen]]:
    """A choice with a field for each option: its name, its type, and what is said of it."""
    fields: dict[str, Any] = {
        name: (kind | None, Field(default=None, description=text)) for name, kind, text in options
    }
    return create_model("OneFieldEach", __base__=Choice[Any], __module__=__name__, **fields)


def _not_one(given: Iterable[str], options: Sequence[str]) -> str | None:
    found = [name for name in options if name in given]
    if len(found) == 1:
        return None
    if len(options) == 1:
        return f"must have {options[0]}, got nothing"
    seen = " and ".join(found) or "none of them"
    return f"must have exactly one of {', '.join(options)}, got {seen}"


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

ObjectNameOrNone = Annotated[
    str,
    AfterValidator(lambda name: name and _is_object_name(name)),
    Field(
        json_schema_extra={"pattern": f"^$|{OBJECT_NAME_PATTERN}", "maxLength": LONGEST_OBJECT_NAME}
    ),
]
"""The name of an object, or an empty text where Kubernetes takes that for none."""

Quantity = Annotated[
    str,
    AfterValidator(_is_quantity),
    Field(json_schema_extra={"pattern": QUANTITY_PATTERN, "maxLength": LONGEST_QUANTITY}),
]
"""An amount of bytes as Kubernetes writes it."""
