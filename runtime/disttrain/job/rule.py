"""One rule between fields of different sections. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pydantic.alias_generators import to_camel

from disttrain.job.finding import Finding, Path, Severity
from disttrain.job.spec import KINDS, DistTrainJob, Spec
from disttrain.job.strategy_kind import StrategyKind

Check = Callable[[Spec], str | None]
Kind = TypeVar("Kind", bound=StrategyKind)

STRATEGIES: tuple[Path, ...] = tuple(("spec", "strategy", to_camel(kind.name)) for kind in KINDS)


@dataclass(frozen=True, slots=True)
class Rule:
    """What is wrong with a spec, if anything, and where to say so.

    It names the paths that it reads, so that it is skipped while one of them is not valid.
    """

    statement: str
    """The rule as the reference page says it."""
    path: Path
    """Where the finding is shown; the first path that is read."""
    also_reads: tuple[Path, ...]
    """The other paths that the check depends on."""
    check: Check
    """Returns the message, or None if all is well."""
    severity: Severity = Severity.ERROR
    """Whether a job may run that breaks the rule."""
    expression: str = ""
    """The rule in CEL, on the spec, for the API server; empty if it does not look at it."""
    sections: tuple[Path, ...] = ()
    """Sections of which only the presence is read: what is wrong in them does not matter."""

    @property
    def reads(self) -> tuple[Path, ...]:
        return (self.path, *self.also_reads)

    def broken_by(self, job: DistTrainJob) -> Finding | None:
        message = self.check(job.spec)
        if message is None:
            return None
        return Finding(path=self.path, message=message, severity=self.severity)


def for_strategy(kind: type[Kind], check: Callable[[Spec, Kind], str | None]) -> Check:
    """A check of jobs with one strategy, which it is given."""

    def of_these(spec: Spec) -> str | None:
        found = spec.strategy.given().get(to_camel(kind.name))
        return None if found is None else check(spec, found)

    return of_these
