"""The arithmetic of the update rules, one module each, as in `job.update_rules`.

Fused kernels of torch read each value once.
"""

from functools import cache
from typing import Any

from disttrain.job import subclasses
from disttrain.job.update_rule import UpdateRule
from disttrain.parameter_server.update_rule import Rule


def rule_for(config: UpdateRule) -> Rule[Any]:
    return _rules()[type(config)](config)


@cache
def _rules() -> dict[type[UpdateRule], type[Rule[Any]]]:
    return {rule.of: rule for rule in subclasses.found(__name__, Rule)}
