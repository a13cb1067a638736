"""The arithmetic of the outer rules, one module each, as in `job.outer_rules`."""

from functools import cache
from typing import Any

from disttrain.job import subclasses
from disttrain.job.shard_rule import ShardRule
from disttrain.parameter_server.update_rule import Rule


def rule_for(config: ShardRule) -> Rule[Any]:
    return _rules()[type(config)](config)


@cache
def _rules() -> dict[type[ShardRule], type[Rule[Any]]]:
    return {rule.of: rule for rule in subclasses.found(__name__, Rule)}
