"""What `disttrain plan` tells of what a job moves beside the messages of its layers."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from torch import nn

from disttrain.cli.plan_text import MOST_LISTED, SHARDS, SHARED, byte_size, said
from disttrain.job import defaults
from disttrain.job.spec import Spec
from disttrain.job.strategy_kind import Exchanges
from disttrain.parallel.counting import Counts
from disttrain.parallel.pricing import Machine
from disttrain.parallel.windows import Grid
from disttrain.replica import shard_plan
from disttrain.replica.shard_plan import OfPartition, OfReplica


class Beside(NamedTuple):
    """Of a job's training."""

    replica: Mapping[Grid, OfReplica]
    """By how its model is divided."""
    exchanges: Exchanges
    replicas: int

    @classmethod
    def of(cls, spec: Spec, model: nn.Module, counts: Sequence[Counts]) -> "Beside":
        formats, rule = defaults.formats(spec), spec.strategy.rule
        return cls(
            {
                each.grid: shard_plan.of_replica(
                    each.parts,
                    model,
                    _shards(spec, each.grid.size),
                    formats,
                    len(rule.pushed),
                    defaults.precision(spec),
                )
                for each in counts
            },
            rule.exchanges,
            spec.replicas.count,
        )

    def seconds(self, counts: Counts, machine: Machine) -> dict[str, float]:
        """Of a step, by what they are for."""
        replica, partitions = self.replica[counts.grid], counts.grid.size
        return {
            SHARED: replica.shared_seconds(machine, partitions),
            SHARDS: replica.shard_seconds(self.exchanges, machine, self.replicas),
        }

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        divided = [{"grid": asdict(grid), **asdict(each)} for grid, each in self.replica.items()]
        return {"exchanges": self.exchanges._asdict(), "replica": divided}

    def lines(self) -> Iterator[str]:
        """What a person reads."""
        for grid, replica in self.replica.items():
            told = [*_of_shards(grid, replica.partitions), *_of_shared(grid, replica)]
            if told:
                yield f"{said(grid)}: {'; '.join(told)}"
        if any(each.partitions for each in self.replica.values()):
            pushes, fetches = self.exchanges.pushes, self.exchanges.fetches
            yield f"in a step, {pushes:.3g} of a push is done, and {fetches:.3g} of a fetch"


def _shards(spec: Spec, partitions: int) -> int:
    """Each partition has shards of its own, so there are as many at least."""
    given = spec.parameter_server.shards
    return 0 if not spec.shards else max(given or 1, partitions)


def _of_shards(grid: Grid, partitions: Sequence[OfPartition]) -> Iterator[str]:
    if not partitions:
        return
    own = [len(each.pushed) for each in partitions]
    most = max(partitions, key=lambda each: sum(each.pushed))
    fewest, count = min(own), max(own)
    told = f"{count}" if fewest == count else f"{fewest} or {count}"
    who = "a replica" if grid.size == 1 else "each partition"
    yield f"{who} pushes to {told} of the shards: {_named(partitions)}"
    at_most = "" if grid.size == 1 else "at most "
    for name, nbytes in (("a push is", most.pushed), ("a fetch", most.fetched)):
        largest = byte_size(max(nbytes, default=0))
        yield f"{name} {at_most}{byte_size(sum(nbytes))}, at one shard {largest}"


def _named(partitions: Sequence[OfPartition]) -> str:
    """Which shards each of the partitions has."""
    found = [_numbers(each.shards) for each in partitions]
    if len(found) == 1:
        return found[0]
    listed = [f"partition {rank} to {each}" for rank, each in enumerate(found[:MOST_LISTED])]
    return ", ".join([*listed, "the others: --json"] if len(found) > MOST_LISTED else listed)


def _numbers(shards: Sequence[int]) -> str:
    """Of 0, 1, 2 and 5: "0-2 and 5". In order; none that is there twice."""
    runs = [
        [shard for _, shard in run]
        for _, run in itertools.groupby(enumerate(shards), lambda each: each[1] - each[0])
    ]
    told = [f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    return " and ".join(told) or "none"


def _of_shared(grid: Grid, replica: OfReplica) -> Iterator[str]:
    if grid.size > 1:
        nbytes = byte_size(replica.shared_bytes)
        yield f"before a step the first gives each other one {nbytes}"
