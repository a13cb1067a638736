"""What is said of a name that nobody knows. Pure."""

import difflib
from collections.abc import Iterable

FEW = 8
"""So many known names are listed when none of them is near."""


RENAMED = {
    "stalenessAwareSgd": "it is now sgd, with spec.strategy.downpour.staleness: {scaleRate: {}}",
    "predictedMomentum": "it is now momentum, with spec.strategy.downpour.staleness: {predict: {}}",
}
"""What former fields are called now."""


def of(name: str, known: Iterable[str]) -> str | None:
    """Return the name that was probably meant, whatever its case; None: none is near."""
    lowered = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), lowered, n=1)
    return lowered[near[0]] if near else None


def unknown(name: str, known: Iterable[str], what: str = "field") -> str:
    """Return the message for a name that nobody knows: the nearest one, or all if they are few."""
    if name in RENAMED:
        return f"unknown {what}; {RENAMED[name]}"
    names = list(known)
    near = of(name, names)
    if near is not None:
        return f"unknown {what}; did you mean '{near}'?"
    if len(names) > FEW:
        return f"unknown {what}"
    return f"unknown {what}; known here: {', '.join(names)}"
