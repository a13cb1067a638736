"""What a holder writes down beside its vectors, so that it finds it again. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows of whole numbers of 64 bits."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Notes:
    """Of one moment, or of one part of a checkpoint."""

    version: int
    """Updates in the values."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    """By name; each is a tensor of the part's file."""
