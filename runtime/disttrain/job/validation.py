"""A plain value to a job, or everything that is wrong with it at once. Pure.

Pydantic does not look at a section as a whole while one of its fields is wrong. So what is wrong
is noted and replaced, and the rest is looked at again, until nothing new is found.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import JsonValue, ValidationError

from disttrain.job import fields, messages, rules
from disttrain.job.finding import Finding, Path, Severity
from disttrain.job.spec import DistTrainJob

MAX_ROUNDS = 10
"""Each round repairs one level of nesting; the manifest has fewer."""


MAX_FINDINGS = 100
"""More than a person reads, few enough that no file takes long to refuse."""

_MORE = Finding(path=(), message=f"more than {MAX_FINDINGS} findings; the others are not shown")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A job, or None if there are errors; with what is wrong, warnings included."""

    job: DistTrainJob | None
    findings: tuple[Finding, ...]


def validate(value: JsonValue, known: Sequence[Finding] = ()) -> Outcome:
    """Return the job that a value describes, or all that is wrong with it; lines are not set.

    `known` is what was wrong with the text already; nothing is said twice about those places.
    """
    findings = list(known)
    value = _repaired(value, (finding.path for finding in known))
    for _ in range(MAX_ROUNDS):
        if len(findings) > MAX_FINDINGS:
            return Outcome(None, (*findings[:MAX_FINDINGS], _MORE))
        try:
            job = DistTrainJob.model_validate(value, by_alias=True, by_name=False)
        except ValidationError as error:
            fresh = _findings(error)
            findings += _not_said(fresh, findings)
            value = _repaired(value, (finding.path for finding in fresh))
        else:
            return _with_rules(job, findings)
    return Outcome(None, tuple(findings))


def _findings(error: ValidationError) -> list[Finding]:
    details = error.errors(include_url=False)[: MAX_FINDINGS + 1]
    return [Finding(path=each["loc"], message=messages.message_for(each)) for each in details]


def _not_said(fresh: list[Finding], findings: list[Finding]) -> list[Finding]:
    """Leave out what only says again that a place, or one of its direct fields, is wrong."""
    said = {finding.path for finding in findings}
    # A list of which no item is valid counts as empty, too.
    said |= {finding.path[:-1] for finding in [*findings, *fresh] if finding.path}
    return [finding for finding in fresh if finding.path not in said]


def _with_rules(job: DistTrainJob, findings: list[Finding]) -> Outcome:
    wrong = [finding.path for finding in findings]
    broken = [rules.apply(rule, job) for rule in rules.RULES if _can_be_checked(rule, wrong)]
    findings += [finding for finding in broken if finding is not None]
    refused = any(finding.severity is Severity.ERROR for finding in findings)
    return Outcome(None if refused else job, tuple(findings))


def _can_be_checked(rule: rules.Rule, wrong: list[Path]) -> bool:
    """Whether everything that the rule reads is as the person wrote it."""
    around = any(section[: len(path)] == path for section in rule.sections for path in wrong)
    return not around and not _touches(rule.reads, wrong)


def _touches(reads: Iterable[Path], wrong: list[Path]) -> bool:
    """Whether a path that is read lies in, or around, one that is wrong."""
    return any(read[: len(path)] == path[: len(read)] for read in reads for path in wrong)


def _repaired(value: JsonValue, paths: Iterable[Path]) -> JsonValue:
    """Return a copy in which what is wrong has its default, or an example if it is required."""
    repaired = copy.deepcopy(value)
    for path in paths:
        _repair(repaired, _up_to_a_list(path))
    return repaired


def _up_to_a_list(path: Path) -> tuple[str, ...]:
    names: list[str] = []
    for part in path:
        if not isinstance(part, str):
            break
        names.append(part)
    return tuple(names)


def _repair(root: JsonValue, path: tuple[str, ...]) -> None:
    parent = root
    for name in path[:-1]:
        parent = parent.get(name) if isinstance(parent, dict) else None
    if not isinstance(parent, dict) or not path:
        return
    parent.pop(path[-1], None)
    field = fields.field_at(path)
    if field and field.is_required() and field.examples:
        parent[path[-1]] = copy.deepcopy(field.examples[0])
