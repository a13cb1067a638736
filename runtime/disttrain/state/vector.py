"""A flat vector, by what it is of: its partition of the model, its name and its element type. Pure.

A model's own vectors are the parameters that are trained, the frozen ones, and its buffers.
Everything else that is kept is named by the strategy that wants it ("momentum", "trial"), and is as
long as the trained parameters of its partition.
"""

import re
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, PlainSerializer

from disttrain.transport.header import ELEMENT_BYTES, ElementType, blocks_around

PARAMETERS = "parameters"
"""What is trained: pushes carry its gradient. A partition has at most one such vector."""
FROZEN = "frozen"
"""Parameters without gradient: uploaded and fetched, never pushed."""
BUFFERS = "buffers"
"""Of floating point: a push moves the holder's copy towards the sent one. Whole numbers (narrower
ones and bool are widened): a push takes the maximum."""
OF_A_MODEL = (PARAMETERS, FROZEN, BUFFERS)

_ON_THEIR_WAY = frozenset({ElementType.BFLOAT16, ElementType.INT8})
"""What single precision may be rounded to."""


class Vector(NamedTuple):
    """Names one vector; its text is "0/parameters/float32"."""

    partition: int
    """Of the model; 0 where it is not divided."""
    name: str
    element_type: ElementType

    def __str__(self) -> str:
        return f"{self.partition}/{self.name}/{self.element_type.name.lower()}"

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.element_type]

    @property
    def held(self) -> "Vector":
        """What holders have of a vector that may be on its way in fewer bits."""
        if self.element_type not in _ON_THEIR_WAY:
            return self
        return self._replace(element_type=ElementType.FLOAT32)

    def place_of(self, first: int, count: int) -> tuple[int, int]:
        """Where some of its elements lie: offset and length in bytes."""
        if self.element_type is ElementType.INT8:
            return blocks_around(first, count)
        return first * self.element_bytes, count * self.element_bytes

    def rounded(self, to: ElementType | None) -> "Vector":
        """The same on its way in other numbers; None: in its own. Only of single precision."""
        return self if to is None else self._replace(element_type=to)

    @property
    def narrow(self) -> "Vector":
        """The same on its way in half of the bits. Only of single precision."""
        return self.rounded(ElementType.BFLOAT16)

    def travels_as(self, element_type: int) -> bool:
        """Whether messages may carry its elements so.

        Frozen parameters and buffers have only their own type.
        """
        if element_type == self.element_type:
            return True
        is_rounded = element_type in _ON_THEIR_WAY and self.element_type is ElementType.FLOAT32
        return is_rounded and self.name not in {FROZEN, BUFFERS}

    @property
    def is_trained(self) -> bool:
        return self.name == PARAMETERS

    @property
    def is_of_a_model(self) -> bool:
        """Whether tensors of the model lie in it; else it is as long as the trained parameters."""
        return self.name in OF_A_MODEL

    def beside(self, name: str) -> "Vector":
        """The vector of another name that goes with this one."""
        return self._replace(name=name)


SINGLE = Vector(0, PARAMETERS, ElementType.FLOAT32)
"""The trained parameters of a model that is not divided, in single precision."""
DOUBLE = Vector(0, PARAMETERS, ElementType.FLOAT64)

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_TEXT = re.compile(rf"(0|[1-9][0-9]{{0,4}})/({_NAME.pattern})/(float32|float64|int64)")

FORMER_NAMES = {
    "PARAMETERS": SINGLE,
    "FROZEN": SINGLE.beside(FROZEN),
    "BUFFERS_FLOAT32": SINGLE.beside(BUFFERS),
    "BUFFERS_FLOAT64": DOUBLE.beside(BUFFERS),
    "BUFFERS_INT64": Vector(0, BUFFERS, ElementType.INT64),
    "TRIAL": SINGLE.beside("trial"),
    "PARAMETERS_FLOAT64": DOUBLE,
    "FROZEN_FLOAT64": DOUBLE.beside(FROZEN),
    "TRIAL_FLOAT64": DOUBLE.beside("trial"),
}
"""As versions before the placement called them. Their journals and ledgers have the numbers of this
order, from 1."""


def parse(text: object) -> Vector:
    """The vector that a text names, as any version writes it. Raises ValueError."""
    if isinstance(text, Vector):
        return text
    former = _former(text)
    if former is not None:
        return former
    found = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        message = f"{str(text)[:100]!r} names no vector; one is 0/parameters/float32"
        raise ValueError(message)
    partition, name, element_type = found.groups()
    return Vector(int(partition), name, ElementType[element_type.upper()])


def _former(text: object) -> Vector | None:
    """By its number, its name, or the name of a tensor beside it: "PARAMETERS.momentum"."""
    if type(text) is int and 0 < text <= len(FORMER_NAMES):
        return tuple(FORMER_NAMES.values())[text - 1]
    name, dot, beside = text.partition(".") if isinstance(text, str) else ("", "", "")
    vector = FORMER_NAMES.get(name)
    if vector is None or not dot:
        return vector
    return vector.beside(beside) if _NAME.fullmatch(beside) else None


VectorText = Annotated[Vector, BeforeValidator(parse), PlainSerializer(str, return_type=str)]
"""A vector in a message, a journal or a manifest."""
