"""A plain value to a job, or everything that is wrong with it at once. Pure.

First each field is looked at, then what is wrong with the fields of a section together, then what
is wrong between sections.
"""

import copy
import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from pydantic import JsonValue, ValidationError
from pydantic_core import ErrorDetails

from disttrain.job import fields, nearest, rules
from disttrain.job.document import parse_scalar
from disttrain.job.finding import Finding, Path, Severity
from disttrain.job.rule import Rule
from disttrain.job.section import FIELDS_ONLY, MOST, Section
from disttrain.job.spec import DistTrainJob

MAX_FINDINGS = 100
"""More than a person reads, few enough that no file takes long to refuse."""

_LONGEST_VALUE = 60
"""Characters of a value that a message shows."""

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
        found = [Finding(path=each["loc"], message=_message_for(each)) for each in details]
        return None, found
    return job, []


def _problems(section: Section, path: Path) -> Iterator[Finding]:
    """What is wrong with the direct fields of a section together, and of those within."""
    if problem := section.problem():
        example = "" if section.model_fields_set else _for_example(path)
        yield Finding(path=path, message=problem + example)
    for name, value in section.given().items():
        if isinstance(value, Section):
            yield from _problems(value, (*path, name))


def _not_said(fresh: Sequence[Finding], findings: Sequence[Finding]) -> list[Finding]:
    """Leave out what only says again that a place, or one of its direct fields, is wrong."""
    said = {finding.path for finding in findings}
    # A list of which no item is valid counts as empty, too, and one with a wrong item as not given.
    paths = [finding.path for finding in [*findings, *fresh] if finding.path]
    said |= {path[:-1] for path in paths}
    said |= {path[:-2] for path in paths if isinstance(path[-1], int)}
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


def _described(value: object) -> str:
    """Return a value and its kind as a person would say it: `'3' (text)`, `nothing (null)`."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true (boolean)" if value else "false (boolean)"
    if isinstance(value, str):
        return f"{_shortened(repr(value))} (text)"
    if isinstance(value, int | float):
        return f"{_shortened(str(value))} (number)"
    return "a mapping" if isinstance(value, dict) else "a list"


def first_message(error: BaseException | None) -> str | None:
    """Return what is wrong first by pydantic's error, as of a manifest; None for another error."""
    return _message_for(error.errors()[0]) if isinstance(error, ValidationError) else None


def _message_for(error: ErrorDetails) -> str:
    """Return rule, value seen and remedy, without the path."""
    if error["type"] in _BOUNDS:
        words, key = _BOUNDS[error["type"]]
        bound, seen = error["ctx"][key], error["input"]
        return f"must be {words} {_number(bound)}, got {_number(seen)}"
    if error["type"] in _KINDS:
        return f"must be {_KINDS[error['type']]}, got {_described(error['input'])}{_meant(error)}"
    if error["type"] in _PARSED:
        return f"must be {_PARSED[error['type']]}, got {_shortened(repr(error['input']))}"
    if error["type"] in _SPECIAL:
        return _SPECIAL[error["type"]](error)
    return error["msg"]


def _meant(error: ErrorDetails) -> str:
    """The end of a message: the number that was meant, where that can be told."""
    seen = error["input"]
    if error["type"] not in _NUMBERS or not isinstance(seen, str | float):
        return ""
    try:
        number = parse_scalar(seen.strip().replace("_", "")) if isinstance(seen, str) else seen
    except ValueError:
        return ""
    if isinstance(number, float) and number.is_integer() and abs(number) <= MOST:
        number = int(number)
    kinds = (int,) if error["type"] == "int_type" else (int, float)
    if type(number) not in kinds:
        return ""
    return f"; write {number}" + (" without quotes" if seen == str(number) else "")


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _number(value: float) -> str:
    return _shortened(f"{value:g}" if isinstance(value, float) else str(value))


def _choice(error: ErrorDetails) -> str:
    expected, seen = error["ctx"]["expected"], error["input"]
    names = expected.replace("'", "").replace(" or ", ", ").split(", ")
    if len(names) == 1:
        return f"must be {expected}, got {_described(seen)}"
    near = difflib.get_close_matches(seen, names, 2, 0.7) if isinstance(seen, str) else []
    # Of several near ones the spelling does not tell which is meant: float16 is no float64, nor is
    # gpu cpu.
    remedy = f"; did you mean '{near[0]}'?" if len(near) == 1 else ""
    return f"must be one of {expected}, got {_described(seen)}{remedy}"


def _missing(error: ErrorDetails) -> str:
    return f"required{_for_example(error['loc'])}"


def _for_example(path: Path) -> str:
    """The end of a message: an example of the field, or nothing if it has none."""
    field = fields.field_at(path)
    example: JsonValue = field.examples[0] if field and field.examples else None
    return "" if example is None else f", for example {_written(example)}"


def _written(value: JsonValue) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    return str(value)


def _extra(error: ErrorDetails) -> str:
    *around, name = error["loc"]
    section = fields.section_at(tuple(around))
    return nearest.unknown(str(name), fields.by_name(section) if section else ())


def _empty(error: ErrorDetails) -> str:
    return f"must not be empty, got {_described(error['input'])}"


def _too_long(error: ErrorDetails) -> str:
    context, seen = error["ctx"], error["input"]
    unit = "characters" if isinstance(seen, str) else "items"
    return f"must have at most {context['max_length']} {unit}, got {len(seen)}"


_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}

_KINDS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "model_type": "a mapping",
    "dict_type": "a mapping",
    "tuple_type": "a list",
}

_PARSED = {
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "float_parsing": "a number",
}
"""Of words of a command: all of them are text."""

_NUMBERS = frozenset({"int_type", "float_type"})

_SPECIAL: dict[str, Callable[[ErrorDetails], str]] = {
    "missing": _missing,
    "extra_forbidden": _extra,
    "literal_error": _choice,
    "enum": _choice,
    "string_too_short": _empty,
    "too_short": _empty,
    "string_too_long": _too_long,
    "too_long": _too_long,
    "value_error": lambda error: str(error["ctx"]["error"]),
}
