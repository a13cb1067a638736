"""Which pushes a shard's values hold at the end, and which were rolled back. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from disttrain.audit.evidence import Evidence, Life, Records, by_sender, sequences
from disttrain.parameter_server.deliveries import SenderLife
from disttrain.parameter_server.ledger import Kind


class Claim(NamedTuple):
    """What a life says that it and those before it have lost of a sender."""

    lost: int
    doubtful: int
    """Number of the last of them, when its sender may not have been answered; else 0."""


NO_CLAIM = Claim(0, 0)
_AT_THE_BEGINNING = (Kind.MISSING, Kind.RESTORED, Kind.LOST)


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
    lost: Mapping[SenderLife, int]
    """Pushes that all lives until now had applied and this one does not hold."""
    claims: Mapping[SenderLife, Claim]
    """What this life says of that."""
    is_settled: bool
    """It lived long enough to say everything about it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """Of one shard."""

    shard: int
    surviving: Records
    """The pushes in its values, in the order of their versions."""
    rollbacks: tuple[Rollback, ...]
    lost: Mapping[SenderLife, frozenset[int]]
    """Numbers of the pushes that it acknowledged and that are in its values no more."""


@dataclass(slots=True)
class _Losses:
    """Numbers of the lost pushes, as one life follows another."""

    numbers: dict[SenderLife, set[int]] = field(default_factory=dict)

    def roll_back(
        self, dropped: Mapping[SenderLife, Records], claims: Mapping[SenderLife, Claim]
    ) -> None:
        """The last push may have been counted, but kill -9 came before it was logged."""
        for sender, records in dropped.items():
            self.numbers.setdefault(sender, set()).update(sequences(records))
        for sender, claim in claims.items():
            if claim.doubtful:
                self.numbers.setdefault(sender, set()).add(claim.doubtful)

    def divide_anew(self, claims: Mapping[SenderLife, Claim]) -> None:
        """Another number of shards: whose updates they were, only the claims know."""
        self.numbers = {sender: set(range(-claim.lost, 0)) for sender, claim in claims.items()}

    def apply(self, pushed: Records) -> None:
        """What comes again is not lost."""
        for sender, records in by_sender(pushed).items():
            self.numbers.get(sender, set()).difference_update(sequences(records))

    def counts(self) -> dict[SenderLife, int]:
        """By sender, those without any left out."""
        return {sender: len(numbers) for sender, numbers in self.numbers.items() if numbers}


def first_version(life: Life) -> int:
    """Updates in the values with which a life began."""
    restored = life.of(Kind.RESTORED)
    return int(restored[0]["version"]) if len(restored) else 0


def of_shard(shard: int, lives: Sequence[Life], resharded: frozenset[int]) -> History:
    """Follows the chain of a shard's lives. `resharded`: runs with another number of shards."""
    surviving: Records = lives[0].of(Kind.PUSHED)
    rollbacks = []
    losses = _Losses()
    for before, life in pairwise(lives):
        version, claims = first_version(life), _claims(life)
        kept = surviving["version"] <= version
        dropped = by_sender(surviving[~kept])
        is_resume = before.run != life.run
        if is_resume and life.run in resharded:
            losses.divide_anew(claims)
        else:
            losses.roll_back(dropped, claims)
        rollback = Rollback(
            life=life,
            version=version,
            is_resume=is_resume,
            dropped=dropped,
            lost=losses.counts(),
            claims=claims,
            is_settled=len(life.of(*_AT_THE_BEGINNING)) < len(life.records),
        )
        rollbacks.append(rollback)
        surviving = np.concatenate([surviving[kept], life.of(Kind.PUSHED)])
        losses.apply(life.of(Kind.PUSHED))
    return History(
        shard=shard,
        surviving=surviving,
        rollbacks=tuple(rollbacks),
        lost={sender: frozenset(numbers) for sender, numbers in losses.numbers.items()},
    )


def of_all(evidence: Evidence) -> list[History]:
    """Of all shards, by index."""
    resharded = _resharded(evidence)
    return [of_shard(shard, lives, resharded) for shard, lives in sorted(evidence.shards.items())]


def _resharded(evidence: Evidence) -> frozenset[int]:
    """Runs that did not have as many shards as the one before."""
    shards: dict[int, set[int]] = {}
    for life in evidence.shard_lives:
        shards.setdefault(life.run, set()).add(life.index)
    runs = pairwise(sorted(shards))
    return frozenset(run for before, run in runs if len(shards[before]) != len(shards[run]))


def _claims(life: Life) -> dict[SenderLife, Claim]:
    return {
        SenderLife(int(record["sender"]), int(record["incarnation"])): Claim(
            int(record["samples"]), int(record["sequence"])
        )
        for record in life.of(Kind.LOST)
    }
