"""Reads what an environment variable may say. No defaults here: each stands beside its setting."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from disttrain_operator.errors import InvalidSettings

Word = TypeVar("Word", bound=str)


def one_of(environ: Mapping[str, str], name: str, allowed: Iterable[Word], default: Word) -> Word:
    """One of these words; an empty text is the default. Raises InvalidSettings."""
    known = {str(word): word for word in allowed}
    text = environ.get(name) or str(default)
    if text not in known:
        message = f"{name}: must be one of {', '.join(known)}, got {text!r}"
        raise InvalidSettings(message)
    return known[text]
