"""Which of the update rules of `job.update_rules` a manifest chooses."""

import inspect
from typing import Any, Final

from pydantic import Field, create_model

from disttrain.job import subclasses
from disttrain.job.section import Choice
from disttrain.job.update_rule import UpdateRule

RULES: Final = subclasses.found("disttrain.job.update_rules", UpdateRule)


def _one_field_each() -> type[Choice]:
    fields: dict[str, Any] = {rule.name: (rule | None, _field(rule)) for rule in RULES}
    return create_model("OneFieldEach", __base__=Choice, __module__=__name__, **fields)


def _field(rule: type[UpdateRule]) -> Any:
    text, _, _ = (inspect.getdoc(rule) or "").partition("\n\n")
    return Field(default=None, description=text)


class Optimizer(_one_field_each()):  # type: ignore[misc]  # Its fields are the modules found.
    """Exactly one update rule, applied on the shards."""

    @property
    def rule(self) -> UpdateRule:
        """The update rule that was chosen."""
        rules: tuple[UpdateRule | None, ...] = tuple(getattr(self, rule.name) for rule in RULES)
        return next(rule for rule in rules if rule is not None)
