"""Whether a process may have written a log at all. Pure.

Only what keeps the checks from counting to numbers that no run reaches: what is wrong and possible,
they find themselves.
"""

import numpy as np

from disttrain.audit.evidence import Life
from disttrain.parameter_server.ledger import Kind as ShardKind
from disttrain.replica.ledger import Kind as ReplicaKind

MOST_UPDATES = 2**27
"""That one log is about. At a thousand a second they take a day and a half."""


def damage(life: Life) -> str | None:
    """Why the log is none of a shard or a replica; None: it may be."""
    kinds = ShardKind if life.is_shard else ReplicaKind
    unknown = np.setdiff1d(life.records["kind"], list(kinds))
    if len(unknown):
        return f"it is damaged: it holds a record of the unknown kind {unknown[0]}"
    return _impossible_numbers(life)


def _impossible_numbers(life: Life) -> str | None:
    losses = life.of(ShardKind.LOST)["samples"] if life.is_shard else ()
    highest = max(np.max(life.records[life.shape.number], initial=0), np.max(losses, initial=0))
    if highest > MOST_UPDATES:
        return f"it is damaged: it tells of update {highest}, and {MOST_UPDATES} are the most"
    first, last = life.folded["first"], life.folded[life.shape.number]
    if np.any(first > last):
        return "it is damaged: a folded record ends before it begins"
    updates = int(np.sum(last - first + 1))
    if updates > MOST_UPDATES:
        return f"it is damaged: it tells of {updates} updates, and {MOST_UPDATES} are the most"
    return None
