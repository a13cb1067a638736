"""Rules between fields of different sections: the general ones, and a module for each strategy.

Pure. A new strategy may have a module here.
"""

from disttrain.job import subclasses
from disttrain.job.finding import Finding
from disttrain.job.rule import Rule
from disttrain.job.rules import general
from disttrain.job.spec import DistTrainJob

RULES: tuple[Rule, ...] = general.RULES + tuple(
    rule
    for module in subclasses.modules(__name__)
    if module is not general
    for rule in module.RULES
)


def check(job: DistTrainJob) -> list[Finding]:
    """Return what is wrong with a well-typed job, errors and warnings; lines are not known here."""
    return [finding for rule in RULES if (finding := rule.broken_by(job)) is not None]
