"""The arithmetic of a manifest's rule, whichever it is: found by its type."""

from functools import cache
from typing import Any

from disttrain.job import subclasses
from disttrain.job.shard_rule import ShardRule
from disttrain.parameter_server.update_rule import Rule

_PACKAGES = ("disttrain.parameter_server.update_rules", "disttrain.parameter_server.outer_rules")


def rule_for(config: ShardRule) -> Rule[Any]:
    return _rules()[type(config)](config)


@cache
def _rules() -> dict[type[ShardRule], type[Rule[Any]]]:
    return {rule.of: rule for package in _PACKAGES for rule in subclasses.found(package, Rule)}
