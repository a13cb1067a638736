"""Which of the update rules of `job.update_rules` a manifest chooses."""

import inspect
from typing import Final

from disttrain.job import subclasses
from disttrain.job.section import one_of
from disttrain.job.update_rule import UpdateRule

RULES: Final = subclasses.found("disttrain.job.update_rules", UpdateRule)


def _summary(rule: type[UpdateRule]) -> str:
    return (inspect.getdoc(rule) or "").partition("\n\n")[0]


class Optimizer(one_of(*((rule.name, rule, _summary(rule)) for rule in RULES))):  # type: ignore[misc]  # Its fields are the modules found.
    """Exactly one update rule, applied on the shards."""

    @property
    def rule(self) -> UpdateRule:
        chosen: UpdateRule = super().rule
        return chosen
