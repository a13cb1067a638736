"""Whether a log can be compared with others at all. Pure.

Only what keeps the checks from counting to numbers that no memory holds: what is wrong and
possible, they find themselves.
"""

import numpy as np

from disttrain.audit.evidence import Life
from disttrain.parameter_server.ledger import Kind as ShardKind
from disttrain.replica.ledger import Kind as ReplicaKind

MOST_UPDATES = 2**27
"""That one log may be about: told apart again, those of a shard take 15 GB."""


def damage(life: Life) -> str | None:
    """Why the log cannot be compared; None: it can."""
    kinds = ShardKind if life.is_shard else ReplicaKind
    unknown = np.setdiff1d(life.records["kind"], list(kinds))
    if len(unknown):
        return f"it is damaged: it holds a record of the unknown kind {unknown[0]}"
    return _impossible_numbers(life)


def _impossible_numbers(life: Life) -> str | None:
    losses = life.of(ShardKind.LOST)["samples"] if life.is_shard else ()
    highest = max(np.max(life.records[life.shape.number], initial=0), np.max(losses, initial=0))
    if highest > MOST_UPDATES:
        return _too_many(f"update {highest}")
    first, last = life.folded["first"], life.folded[life.shape.number]
    if np.any(first > last):
        return "it is damaged: a folded record ends before it begins"
    updates = int(np.sum(last - first + 1))
    if updates > MOST_UPDATES:
        return _too_many(f"{updates} updates")
    return None


def _too_many(what: str) -> str:
    return f"it tells of {what}, and at most {MOST_UPDATES} can be compared"
