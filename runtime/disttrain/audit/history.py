"""Which pushes a shard's values hold at the end, and which were rolled back. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from disttrain.audit.evidence import Evidence, Incarnation, Records, by_sender, sequences
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.ledger import Kind


class Claim(NamedTuple):
    """What an incarnation says that it and those before it have lost of a sender."""

    lost: int
    doubtful: int
    """Number of the last of them, when its sender may not have been answered; else 0."""


NO_CLAIM = Claim(0, 0)
_AT_THE_BEGINNING = (Kind.MISSING, Kind.RESTORED, Kind.TAKEN_OVER, Kind.LOST)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollback:
    """One incarnation took over from another."""

    incarnation: Incarnation
    version: int
    """Of the checkpoint that it began with; 0 without one."""
    is_resume: bool
    """Another run began with it, maybe with another number of shards."""
    dropped: Mapping[SenderIncarnation, Records]
    """Pushes that the incarnation before had applied and this one does not hold."""
    lost: Mapping[SenderIncarnation, int] = field(default_factory=dict)
    """Pushes that all incarnations until now had applied and this one does not hold."""
    claims: Mapping[SenderIncarnation, Claim] = field(default_factory=dict)
    """What this incarnation says of that."""
    is_settled: bool = False
    """It lived long enough to say everything about it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """Of one shard."""

    shard: int
    surviving: Records
    """The pushes in its values, in the order of their versions."""
    rollbacks: tuple[Rollback, ...]
    lost: Mapping[SenderIncarnation, frozenset[int]]
    """Numbers of the pushes that it acknowledged and that are in its values no more."""
    is_taken_over: bool
    """A later run has fewer shards: another one accounts for what this one has lost."""


@dataclass(slots=True)
class _Losses:
    """Numbers of the lost pushes, as one incarnation follows another."""

    numbers: dict[SenderIncarnation, set[int]] = field(default_factory=dict)

    def roll_back(
        self,
        dropped: Mapping[SenderIncarnation, Records],
        claims: Mapping[SenderIncarnation, Claim],
    ) -> None:
        """The last push may have been counted, but kill -9 came before it was logged."""
        for sender, records in dropped.items():
            self.numbers.setdefault(sender, set()).update(sequences(records))
        for sender, claim in claims.items():
            if claim.doubtful:
                self.numbers.setdefault(sender, set()).add(claim.doubtful)

    def divide_anew(self, claims: Mapping[SenderIncarnation, Claim]) -> None:
        """Another number of shards: whose updates they were, only the claims know."""
        self.numbers = {sender: set(range(-claim.lost, 0)) for sender, claim in claims.items()}

    def apply(self, pushed: Records) -> None:
        """What comes again is not lost."""
        for sender, records in by_sender(pushed).items():
            self.numbers.get(sender, set()).difference_update(sequences(records))

    def counts(self) -> dict[SenderIncarnation, int]:
        return {sender: len(numbers) for sender, numbers in self.numbers.items() if numbers}


@dataclass(slots=True)
class _Chain:
    """The pushes in a shard's values, as one incarnation follows another."""

    shard: int
    takers: Mapping[int, Incarnation]
    surviving: Records
    losses: _Losses = field(default_factory=_Losses)
    rollbacks: list[Rollback] = field(default_factory=list)

    def follow(self, incarnation: Incarnation, *, is_resume: bool) -> None:
        """The next incarnation begins with what a checkpoint holds, and applies its own pushes."""
        version, claims = _version(self.shard, incarnation, self.takers), _claims(incarnation)
        dropped = self._drop_after(version)
        if is_resume and incarnation.run in self.takers:
            self.losses.divide_anew(claims)
            self.surviving = _counted_anew(self.surviving, first_version(incarnation))
        else:
            self.losses.roll_back(dropped, claims)
        rollback = Rollback(
            incarnation=incarnation,
            version=version,
            is_resume=is_resume,
            dropped=dropped,
            lost=self.losses.counts(),
            claims=claims,
            is_settled=len(incarnation.of(*_AT_THE_BEGINNING)) < len(incarnation.records),
        )
        self.rollbacks.append(rollback)
        pushed = incarnation.each()
        self.surviving = np.concatenate([self.surviving, pushed])
        self.losses.apply(pushed)

    def end_with(self, taker: Incarnation) -> None:
        """Another shard goes on from what a checkpoint holds of this one."""
        version = _version(self.shard, taker, self.takers)
        dropped = self._drop_after(version)
        rollback = Rollback(incarnation=taker, version=version, is_resume=True, dropped=dropped)
        self.rollbacks.append(rollback)
        self.losses.roll_back(dropped, {})

    def _drop_after(self, version: int) -> Mapping[SenderIncarnation, Records]:
        kept = self.surviving["version"] <= version
        dropped = by_sender(self.surviving[~kept])
        self.surviving = self.surviving[kept]
        return dropped


def first_version(incarnation: Incarnation) -> int:
    restored = incarnation.of(Kind.RESTORED)
    return int(restored[0]["version"]) if len(restored) else 0


def of_shard(
    shard: int, incarnations: Sequence[Incarnation], takers: Mapping[int, Incarnation]
) -> History:
    """Follows the chain of a shard's incarnations.

    `takers`: by run with another number of shards than before, who answers for this shard then.
    """
    chain = _Chain(shard, takers, incarnations[0].each())
    for before, incarnation in pairwise(incarnations):
        chain.follow(incarnation, is_resume=before.run != incarnation.run)
    # If a later run has fewer shards.
    taker = next((takers[run] for run in sorted(takers) if run > incarnations[-1].run), None)
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
        of_shard(shard, incarnations, _takers(evidence, shard))
        for shard, incarnations in sorted(evidence.shards.items())
    ]


def _takers(evidence: Evidence, shard: int) -> dict[int, Incarnation]:
    """By run, the first incarnation that says it answers for this shard."""
    found: dict[int, Incarnation] = {}
    for incarnation in evidence.shard_incarnations:
        if shard in incarnation.of(Kind.TAKEN_OVER)["chunk"]:
            found.setdefault(incarnation.run, incarnation)
    return found


def _version(shard: int, incarnation: Incarnation, takers: Mapping[int, Incarnation]) -> int:
    """How many of the shard's own updates are in the values with which an incarnation begins."""
    taker = takers.get(incarnation.run)
    if taker is None or taker is not incarnation:
        return first_version(incarnation)
    taken = incarnation.of(Kind.TAKEN_OVER)
    return int(taken[taken["chunk"] == shard][0]["version"])


def _counted_anew(pushes: Records, version: int) -> Records:
    """With another number of shards, versions go on from the least that the checkpoint holds."""
    counted = pushes.copy()
    counted["version"] = np.minimum(pushes["version"], version)
    return counted


def _claims(incarnation: Incarnation) -> dict[SenderIncarnation, Claim]:
    return {
        SenderIncarnation(int(record["sender"]), int(record["incarnation"])): Claim(
            int(record["samples"]), int(record["sequence"])
        )
        for record in incarnation.of(Kind.LOST)
    }
