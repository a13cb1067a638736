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
_AT_THE_BEGINNING = (Kind.MISSING, Kind.RESTORED, Kind.TAKEN_OVER, Kind.LOST)


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
    lost: Mapping[SenderLife, int] = field(default_factory=dict)
    """Pushes that all lives until now had applied and this one does not hold."""
    claims: Mapping[SenderLife, Claim] = field(default_factory=dict)
    """What this life says of that."""
    is_settled: bool = False
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
    is_taken_over: bool
    """A later run has fewer shards: another one accounts for what this one has lost."""


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
        return {sender: len(numbers) for sender, numbers in self.numbers.items() if numbers}


@dataclass(slots=True)
class _Chain:
    """The pushes in a shard's values, as one life follows another."""

    shard: int
    takers: Mapping[int, Life]
    surviving: Records
    losses: _Losses = field(default_factory=_Losses)
    rollbacks: list[Rollback] = field(default_factory=list)

    def follow(self, life: Life, *, is_resume: bool) -> None:
        """The next life: it begins with what a checkpoint holds, and applies its own pushes."""
        version, claims = _version(self.shard, life, self.takers), _claims(life)
        dropped = self._drop_after(version)
        if is_resume and life.run in self.takers:
            self.losses.divide_anew(claims)
            self.surviving = _counted_anew(self.surviving, first_version(life))
        else:
            self.losses.roll_back(dropped, claims)
        rollback = Rollback(
            life=life,
            version=version,
            is_resume=is_resume,
            dropped=dropped,
            lost=self.losses.counts(),
            claims=claims,
            is_settled=len(life.of(*_AT_THE_BEGINNING)) < len(life.records),
        )
        self.rollbacks.append(rollback)
        pushed = life.each()
        self.surviving = np.concatenate([self.surviving, pushed])
        self.losses.apply(pushed)

    def end_with(self, taker: Life) -> None:
        """Another shard goes on from what a checkpoint holds of this one."""
        version = _version(self.shard, taker, self.takers)
        dropped = self._drop_after(version)
        rollback = Rollback(life=taker, version=version, is_resume=True, dropped=dropped)
        self.rollbacks.append(rollback)
        self.losses.roll_back(dropped, {})

    def _drop_after(self, version: int) -> Mapping[SenderLife, Records]:
        kept = self.surviving["version"] <= version
        dropped = by_sender(self.surviving[~kept])
        self.surviving = self.surviving[kept]
        return dropped


def first_version(life: Life) -> int:
    restored = life.of(Kind.RESTORED)
    return int(restored[0]["version"]) if len(restored) else 0


def of_shard(shard: int, lives: Sequence[Life], takers: Mapping[int, Life]) -> History:
    """Follows the chain of a shard's lives.

    `takers`: by run with another number of shards than before, who answers for this shard then.
    """
    chain = _Chain(shard, takers, lives[0].each())
    for before, life in pairwise(lives):
        chain.follow(life, is_resume=before.run != life.run)
    # If a later run has fewer shards.
    taker = next((takers[run] for run in sorted(takers) if run > lives[-1].run), None)
    if taker is not None:
        chain.end_with(taker)
    return History(
        shard=shard,
        surviving=chain.surviving,
        rollbacks=tuple(chain.rollbacks),
        lost={sender: frozenset(numbers) for sender, numbers in chain.losses.numbers.items()},
        is_taken_over=taker is not None,
    )


def of_all(evidence: Evidence) -> list[History]:
    return [
        of_shard(shard, lives, _takers(evidence, shard))
        for shard, lives in sorted(evidence.shards.items())
    ]


def _takers(evidence: Evidence, shard: int) -> dict[int, Life]:
    """By run, the first life that says it answers for this shard."""
    found: dict[int, Life] = {}
    for life in evidence.shard_lives:
        if shard in life.of(Kind.TAKEN_OVER)["chunk"]:
            found.setdefault(life.run, life)
    return found


def _version(shard: int, life: Life, takers: Mapping[int, Life]) -> int:
    """How many of the shard's own updates are in the values with which a life begins."""
    taker = takers.get(life.run)
    if taker is None or taker is not life:
        return first_version(life)
    taken = life.of(Kind.TAKEN_OVER)
    return int(taken[taken["chunk"] == shard][0]["version"])


def _counted_anew(pushes: Records, version: int) -> Records:
    """With another number of shards, versions go on from the least that the checkpoint holds."""
    counted = pushes.copy()
    counted["version"] = np.minimum(pushes["version"], version)
    return counted


def _claims(life: Life) -> dict[SenderLife, Claim]:
    return {
        SenderLife(int(record["sender"]), int(record["incarnation"])): Claim(
            int(record["samples"]), int(record["sequence"])
        )
        for record in life.of(Kind.LOST)
    }
