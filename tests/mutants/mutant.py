"""A guard of the product that is removed on purpose."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """One guard removed on purpose."""

    name: str
    """What goes wrong without the guard."""
    file: str
    old: str
    """Text that occurs once in the file."""
    new: str
    tests: tuple[str, ...]
    """Files or folders of which one test must fail."""
