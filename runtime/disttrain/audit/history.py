"""Which pushes a shard's values hold at the end, and which were rolled back. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from disttrain.audit.evidence import Evidence, Life, Records, by_sender
from disttrain.parameter_server.deliveries import SenderLife
from disttrain.parameter_server.ledger import Kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollback:
    """One life took over from another."""

    life: Life
    version: int
    """Of the checkpoint that it began with; 0 without one."""
    is_resume: bool
    """Another run began with it, maybe with another number of shards."""
    dropped: Mapping[SenderLife, Records]
    """Pushes that the life before had applied and this one does not hold."""
    reported: Mapping[SenderLife, int]
    """Pushes that it said are lost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """Of one shard."""

    shard: int
    surviving: Records
    """The pushes in its values, in the order of their versions."""
    rollbacks: tuple[Rollback, ...]


def first_version(life: Life) -> int:
    """Updates in the values with which a life began."""
    restored = life.of(Kind.RESTORED)
    return int(restored[0]["version"]) if len(restored) else 0


def of_shard(shard: int, lives: Sequence[Life]) -> History:
    """Follows the chain of a shard's lives."""
    surviving: Records = lives[0].of(Kind.PUSHED)
    rollbacks = []
    for before, life in pairwise(lives):
        version = first_version(life)
        kept = surviving["version"] <= version
        rollbacks.append(
            Rollback(
                life=life,
                version=version,
                is_resume=before.run != life.run,
                dropped=by_sender(surviving[~kept]),
                reported=_reported(life),
            )
        )
        surviving = np.concatenate([surviving[kept], life.of(Kind.PUSHED)])
    return History(shard=shard, surviving=surviving, rollbacks=tuple(rollbacks))


def of_all(evidence: Evidence) -> list[History]:
    """Of all shards, by index."""
    return [of_shard(shard, lives) for shard, lives in sorted(evidence.shards.items())]


def _reported(life: Life) -> dict[SenderLife, int]:
    return {
        SenderLife(int(record["sender"]), int(record["incarnation"])): int(record["samples"])
        for record in life.of(Kind.LOST)
    }
