"""How people name a job: `digits`, `dtj/digits`, as kubectl lets them. Pure."""

import difflib
from collections.abc import Iterable
from typing import Final

from disttrain.cluster.errors import NotFound, WrongInput
from disttrain.job.cluster_names import PLURAL
from disttrain.job.spec import API_VERSION

_GROUP, _VERSION = API_VERSION.split("/")
_SINGULAR: Final = PLURAL.removesuffix("s")
KINDS: Final = frozenset(
    f"{word}{suffix}"
    for word in ("dtj", _SINGULAR, PLURAL)
    for suffix in ("", f".{_GROUP}", f".{_VERSION}.{_GROUP}")
)
"""Words for the kind, in small letters."""


def is_qualified(text: str) -> bool:
    """Whether it says by itself that it means a job of a cluster."""
    kind, slash, name = text.partition("/")
    return bool(slash and name) and kind.lower() in KINDS


def name(text: str) -> str:
    """The job's name. Raises WrongInput for another kind of object."""
    kind, slash, found = text.rpartition("/")
    if (slash and kind.lower() not in KINDS) or not found:
        message = f"'{text}' names no job: expected NAME or dtj/NAME"
        raise WrongInput(message)
    return found


def missing(wanted: str, namespace: str, others: Iterable[str]) -> NotFound:
    """The error for a job that is not there, with the nearest one that is."""
    near = difflib.get_close_matches(wanted, list(others), n=1)
    hint = f"; did you mean {near[0]}?" if near else "; `disttrain list -A` shows all jobs"
    return NotFound(f"no job {wanted} in namespace {namespace}{hint}")
