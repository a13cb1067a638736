"""What every part of a manifest has in common: strict, frozen, camelCase outside, documented."""

from collections.abc import Sequence
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator
from pydantic.alias_generators import to_camel
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


class Section(BaseModel):
    """A mapping of the manifest. A validator of a section looks at its direct fields only."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )


Chosen = TypeVar("Chosen")


class Choice(Section, Generic[Chosen]):
    """A section of which exactly one field is given; null counts as not given."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    @property
    def rule(self) -> Chosen:
        """What was chosen."""
        fields = (getattr(self, name) for name in type(self).model_fields)
        chosen: Chosen = next(field for field in fields if field is not None)
        return chosen

    @model_validator(mode="after")
    def _has_exactly_one(self) -> Self:
        aliases = {name: field.alias or name for name, field in type(self).model_fields.items()}
        given = [alias for name, alias in aliases.items() if getattr(self, name) is not None]
        nothing = [aliases[name] for name in aliases if name in self.model_fields_set]
        require_one(given, list(aliases.values()), nothing if not given else [])
        return self


def one_of(*options: tuple[str, type[Chosen], str]) -> type[Choice[Chosen]]:
    """A choice with a field for each option: its name, its type, and what is said of it."""
    fields: dict[str, Any] = {
        name: (kind | None, Field(default=None, description=text)) for name, kind, text in options
    }
    return create_model("OneFieldEach", __base__=Choice[Any], __module__=__name__, **fields)


def require_one(given: list[str], options: list[str], nulls: Sequence[str] = ()) -> None:
    """Raise unless exactly one of the options is given. All lists hold names of the manifest.

    `nulls`: sections that are there, without anything in them.
    """
    if len(given) == 1:
        return
    several = len(options) > 1
    wanted = f"exactly one of {', '.join(options)}" if several else options[0]
    seen = " and ".join(given) or ("none of them" if several else "nothing")
    if nulls:
        seen = f"{nulls[0]}: null; a section of defaults is {nulls[0]}: {{}}"
    raise PydanticCustomError(
        "exactly_one", "must have {wanted}, got {seen}", {"wanted": wanted, "seen": seen}
    )
