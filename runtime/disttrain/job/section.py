"""What every part of a manifest has in common: strict, frozen, camelCase outside, documented."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, model_validator
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

MOST = 10**15
"""More of anything is a slip of the hand, and products of two would leave 64 bits far behind."""

Count = Annotated[int, Field(ge=1, le=MOST)]
"""A whole number of at least 1."""

WholeNumber = Annotated[int, Field(ge=0)]
"""A whole number of at least 0."""

Positive = Annotated[float, Field(gt=0)]
"""A finite number above 0."""

NotNegative = Annotated[float, Field(ge=0)]
"""A finite number of at least 0."""

Fraction = Annotated[float, Field(ge=0, le=1)]
"""A number from 0 to 1."""

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
        """What was chosen."""
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


def _not_one(given: Iterable[str], options: Sequence[str]) -> str | None:
    found = [name for name in options if name in given]
    if len(found) == 1:
        return None
    if len(options) == 1:
        return f"must have {options[0]}, got nothing"
    seen = " and ".join(found) or "none of them"
    return f"must have exactly one of {', '.join(options)}, got {seen}"
