"""Shards of Downpour without a process."""

from collections.abc import Callable, Sequence
from typing import Any

from disttrain.holder.restoring import MakeValues
from disttrain.holder.values import Values
from disttrain.job.length import UNKNOWN, Extent, Length
from disttrain.job.staleness import Staleness
from disttrain.job.update_rule import UpdateRule
from disttrain.parameter_server.arithmetic import rule_for
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.shard import Shard
from disttrain.parameter_server.strategies.downpour import PushedGradients
from disttrain.parameter_server.update_rule import Rule


def build(
    state: ShardState,
    rule: UpdateRule | Rule[Any],
    records: Records | None = None,
    extent: Callable[[int], Extent] = lambda _: UNKNOWN,
    *,
    staleness: Staleness | None = None,
    average: Length | None = None,
) -> Shard:
    """Without values; see `Shard.configure`."""
    arithmetic = rule_for(rule) if isinstance(rule, UpdateRule) else rule
    kept = records or Records(incarnation=state.incarnation)
    stage = PushedGradients(
        arithmetic,
        state,
        kept,
        extent,
        staleness=staleness,
        average=average,
    )
    return Shard([stage])


def with_state(names: Sequence[str]) -> MakeValues:
    """Room for an update rule's state vectors, too."""
    return lambda share, _: Values(share, dict.fromkeys(names, 0.0))
