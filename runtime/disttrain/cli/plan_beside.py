"""What `disttrain plan` tells of what a job moves beside the messages of its layers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any, NamedTuple

from torch import nn

from disttrain.cli.plan_text import SHARDS, VALUES, byte_size, said
from disttrain.job import defaults
from disttrain.job.spec import Spec
from disttrain.job.strategy_kind import Exchanges
from disttrain.parallel.counting import Counts
from disttrain.parallel.pricing import Machine
from disttrain.parallel.windows import Grid
from disttrain.replica import model_tensors, shard_plan
from disttrain.replica.shard_plan import OfParts, OfShards

_MOST_LISTED = 8
"""Partitions whose shards are told one by one."""


class Beside(NamedTuple):
    """Of a job's training."""

    shards: OfShards | None
    """None: replicas hold the parameters."""
    parts: Mapping[Grid, OfParts]
    exchanges: Exchanges
    replicas: int

    @classmethod
    def of(cls, spec: Spec, model: nn.Module, counts: Sequence[Counts]) -> "Beside":
        formats, rule = defaults.formats(spec), spec.strategy.rule
        layout = model_tensors.describe(model, formats.held).layout
        return cls(
            shard_plan.of_shards(layout, spec.shards, formats, len(rule.pushed))
            if spec.shards
            else None,
            {each.grid: shard_plan.of_parts(each.parts, layout, spec.shards) for each in counts},
            rule.exchanges,
            spec.replicas.count,
        )

    def seconds(self, counts: Counts, machine: Machine) -> dict[str, float]:
        """Of a step, by what they are for."""
        return {
            VALUES: self.parts[counts.grid].seconds(machine),
            SHARDS: self.shards.seconds(self.exchanges, machine, self.replicas)
            if self.shards
            else 0.0,
        }

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        parts = [{"grid": asdict(grid), **asdict(each)} for grid, each in self.parts.items()]
        shards = asdict(self.shards) if self.shards else None
        return {"shards": shards, "exchanges": self.exchanges._asdict(), "parts": parts}

    def lines(self) -> Iterator[str]:
        """What a person reads."""
        if self.shards is not None:
            yield _of_shards(self.shards, self.exchanges)
        for grid, parts in self.parts.items():
            if grid.size > 1:
                yield _of_parts(grid, parts)


def _of_shards(shards: OfShards, exchanges: Exchanges) -> str:
    pushed, fetched = shards.pushed, shards.fetched
    count = len(pushed)
    return (
        f"the first process of a replica has {count} connection{'s' if count > 1 else ''}, one to "
        f"each shard. A push is {byte_size(sum(pushed))}, at one shard {byte_size(max(pushed))}; a "
        f"fetch {byte_size(sum(fetched))} and {byte_size(max(fetched))}. In a step it does "
        f"{exchanges.pushes:.3g} of the one, and {exchanges.fetches:.3g} of the other"
    )


def _of_parts(grid: Grid, parts: OfParts) -> str:
    text = (
        f"{said(grid)}: for each step it gives the others "
        f"{byte_size(parts.given_bytes)} of values, and gets {byte_size(parts.returned_bytes)} of "
        f"gradients"
    )
    return f"{text}; {_holders(parts.shards)}" if any(parts.shards) else text


def _holders(shards: Sequence[Sequence[int]]) -> str:
    if len(shards) > _MOST_LISTED:
        fewest, most = min(map(len, shards)), max(map(len, shards))
        told = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        return f"values of a partition lie on {told} of the shards"
    each_one = (f"of {rank} on {_ranges(each)}" for rank, each in enumerate(shards))
    return f"values lie on shards: {', '.join(each_one)}"


def _ranges(numbers: Sequence[int]) -> str:
    """As "0-3+7"."""
    found = []
    for _, run in groupby(enumerate(numbers), lambda each: each[1] - each[0]):
        first, *_, last = [number for _, number in run] * 2
        found.append(str(first) if first == last else f"{first}-{last}")
    return "+".join(found) or "none"
