"""What still counts of a manifest that the rules refuse: how its job is scaled, stopped and ended.

A job may run by a manifest that an older operator accepted. Nothing is made for it any more, but
it is looked after until its end.
"""

from functools import lru_cache
from typing import Any, Final

from pydantic import ValidationError

from disttrain.job.spec import Spec
from disttrain_operator import json_text, untrusted

_STANDS_IN: Final[dict[str, Any]] = {
    "task": {"entrypoint": "unknown:Unknown"},
    "strategy": {"downpour": {"optimizer": {"sgd": {"learningRate": 0.1}}}},
    "batchSize": 1,
    "stop": {"epochs": 1},
    "parameterServer": {"shards": 1},
    "replicas": {"count": 1},
}
"""For what must be given and decides nothing here."""

_COUNTS: Final = (
    ("strategy",),
    ("parameterServer", "shards"),
    ("replicas", "count"),
    ("suspend",),
    ("activeDeadlineSeconds",),
    ("pendingDeadlineSeconds",),
    ("ttlSecondsAfterFinished",),
    ("managedBy",),
    ("failurePolicy", "maxRestarts"),
    ("failurePolicy", "rules"),
)
"""Each is taken if it is valid by itself."""

_KEPT = 256


@lru_cache(maxsize=_KEPT)
def spec(written: str) -> Spec:
    """The spec with all that counts of the written one; what cannot be read has its default."""
    given = untrusted.mapping(json_text.read(written))
    wanted = _STANDS_IN
    for path in _COUNTS:
        candidate = _with(wanted, given, path)
        if candidate is not None and _is_valid(candidate):
            wanted = candidate
    return Spec.model_validate(wanted, by_alias=True, by_name=False)


def _with(
    wanted: dict[str, Any], given: dict[str, Any], path: tuple[str, ...]
) -> dict[str, Any] | None:
    """What is wanted with one value as it is given; None if it is not given."""
    name, *inner = path
    if name not in given:
        return None
    if not inner:
        return {**wanted, name: given[name]}
    below = _with(untrusted.mapping(wanted, name), untrusted.mapping(given, name), tuple(inner))
    return None if below is None else {**wanted, name: below}


def _is_valid(candidate: dict[str, Any]) -> bool:
    try:
        Spec.model_validate(candidate, by_alias=True, by_name=False)
    except ValidationError:
        return False
    return True
