"""A plain value to a job, or everything that is wrong with it at once. Pure.

First each field is looked at, then what is wrong with the fields of a section together, then what
is wrong between sections.
"""

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from pydantic import JsonValue, ValidationError

from disttrain.job import fields, messages, rules
from disttrain.job.finding import Finding, Path, Severity
from disttrain.job.rule import Rule
from disttrain.job.section import FIELDS_ONLY, Section
from disttrain.job.spec import DistTrainJob

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
    value = _repaired(value, known)
    job, wrong = _typed(value)
    findings = [*known, *_not_said(wrong, known)]
    if len(findings) > MAX_FINDINGS:
        return Outcome(None, (*findings[:MAX_FINDINGS], _MORE))
    if job is None:
        job, _ = _typed(_repaired(value, wrong))
    if job is None:
        return Outcome(None, tuple(findings))
    problems = list(_problems(job, ()))
    wrong_paths = [finding.path for finding in (*findings, *problems)]
    return _with_rules(job, [*findings, *_not_said(problems, findings)], wrong_paths)


def _typed(value: JsonValue) -> tuple[DistTrainJob | None, list[Finding]]:
    try:
        job = DistTrainJob.model_validate(value, context=FIELDS_ONLY, by_alias=True, by_name=False)
    except ValidationError as error:
        details = error.errors(include_url=False)[: MAX_FINDINGS + 1]
        found = [Finding(path=each["loc"], message=messages.message_for(each)) for each in details]
        return None, found
    return job, []


def _problems(section: Section, path: Path) -> Iterator[Finding]:
    """What is wrong with the direct fields of a section together, and of those within."""
    if problem := section.problem():
        example = "" if section.model_fields_set else messages.for_example(path)
        yield Finding(path=path, message=problem + example)
    for name, value in section.given().items():
        if isinstance(value, Section):
            yield from _problems(value, (*path, name))


def _not_said(fresh: Sequence[Finding], findings: Sequence[Finding]) -> list[Finding]:
    """Leave out what only says again that a place, or one of its direct fields, is wrong."""
    said = {finding.path for finding in findings}
    # A list of which no item is valid counts as empty, too.
    said |= {finding.path[:-1] for finding in [*findings, *fresh] if finding.path}
    return [finding for finding in fresh if finding.path not in said]


def _with_rules(job: DistTrainJob, findings: list[Finding], wrong: list[Path]) -> Outcome:
    """`wrong`: also where something is wrong that another finding says already."""
    broken = [rule.broken_by(job) for rule in rules.RULES if _can_be_checked(rule, wrong)]
    findings += [finding for finding in broken if finding is not None]
    refused = any(finding.severity is Severity.ERROR for finding in findings)
    return Outcome(None if refused else job, tuple(findings))


def _can_be_checked(rule: Rule, wrong: list[Path]) -> bool:
    """Whether everything that the rule reads is as the person wrote it."""
    around = any(section[: len(path)] == path for section in rule.sections for path in wrong)
    return not around and not _touches(rule.reads, wrong)


def _touches(reads: Iterable[Path], wrong: list[Path]) -> bool:
    """Whether a path that is read lies in, or around, one that is wrong."""
    return any(read[: len(path)] == path[: len(read)] for read in reads for path in wrong)


def _repaired(value: JsonValue, findings: Iterable[Finding]) -> JsonValue:
    """Return a copy in which what is wrong has its default, or an example if it is required."""
    repaired = copy.deepcopy(value)
    for finding in findings:
        _repair(repaired, finding.path)
    return repaired


def _repair(root: JsonValue, path: Path) -> None:
    # A list with something wrong in it is left out as a whole.
    names = [str(part) for part in takewhile(lambda part: isinstance(part, str), path)]
    parent = root
    for name in names[:-1]:
        parent = parent.get(name) if isinstance(parent, dict) else None
    if not isinstance(parent, dict) or not names:
        return
    parent.pop(names[-1], None)
    field = fields.field_at(tuple(names))
    if field and field.is_required() and field.examples:
        parent[names[-1]] = copy.deepcopy(field.examples[0])
