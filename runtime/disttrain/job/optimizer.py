"""Which of the update rules of `job.update_rules` a manifest chooses."""

import inspect
from typing import Any, Final

from pydantic import Field, create_model

from disttrain.job import subclasses
from disttrain.job.section import Choice
from disttrain.job.update_rule import UpdateRule

RULES: Final = subclasses.found("disttrain.job.update_rules", UpdateRule)


def _one_field_each() -> type[Choice[UpdateRule]]:
    fields: dict[str, Any] = {rule.name: (rule | None, _field(rule)) for rule in RULES}
    return create_model("OneFieldEach", __base__=Choice[UpdateRule], __module__=__name__, **fields)


def _field(rule: type[UpdateRule]) -> Any:
    text, _, _ = (inspect.getdoc(rule) or "").partition("\n\n")
    return Field(default=None, description=text)


class Optimizer(_one_field_each()):  # type: ignore[misc]  # Its fields are the modules found.
    """Exactly one update rule, applied on the shards."""

    @property
    def rule(self) -> UpdateRule:
        chosen: UpdateRule = super().rule
        return chosen
