"""What the values of the manifest's enums mean, from the text below each value in the source."""

import ast
import inspect
from enum import StrEnum
from itertools import pairwise

from disttrain.job.checkpoint import AccessMode, WhenDeleted
from disttrain.job.failure_policy import FailureAction
from disttrain.job.names import Role
from disttrain.job.roles import Device, Durability
from disttrain.job.spec import Audit
from disttrain.job.transport import Encryption, TransportChoice

ENUMS: tuple[type[StrEnum], ...] = (
    AccessMode,
    Audit,
    Device,
    Durability,
    Encryption,
    FailureAction,
    Role,
    TransportChoice,
    WhenDeleted,
)
"""Every enum that a field of the manifest can hold."""


def meanings(enum: type[StrEnum]) -> dict[str, str]:
    """Return the meaning of each value, in the order of the source."""
    (definition,) = ast.parse(inspect.getsource(enum)).body
    if not isinstance(definition, ast.ClassDef):
        message = f"the source of {enum.__name__} is not a class"
        raise TypeError(message)
    return {
        enum[member.targets[0].id].value: text.value.value
        for member, text in pairwise(definition.body)
        if isinstance(member, ast.Assign)
        and isinstance(member.targets[0], ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
