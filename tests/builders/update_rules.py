"""The names of all update rules, as messages list them, however many there are."""

from pydantic.alias_generators import to_camel

from disttrain.job.strategies.downpour import UPDATE_RULES

NAMES = ", ".join(to_camel(rule.name) for rule in UPDATE_RULES)
