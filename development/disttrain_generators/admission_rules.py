"""What the API server itself refuses, as rules in its expression language (CEL). Pure.

The rest of the manifest's rules needs a person to read the conditions of the job.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from disttrain.job import rules
from disttrain.job.finding import Severity
from disttrain.job.section import EXACTLY_ONE
from disttrain.job.spec import LONGEST_NAME, NAME_PATTERN

Validation = dict[str, str]
"""An entry of x-kubernetes-validations."""

CHANGEABLE: Final = frozenset(
    {
        ("replicas", "count"),
        ("suspend",),
        ("activeDeadlineSeconds",),
        ("ttlSecondsAfterFinished",),
    }
)
"""Paths below spec that may change while a job is there."""

WHILE_SUSPENDED: Final = frozenset(
    {("coordinator", "template"), ("parameterServer", "template"), ("replicas", "template")}
)
"""Paths that may change together with suspend, or while it is true: a queue sends a job to other
nodes with them. All of a template, since the language sees no field of what the schema leaves open.
"""

NAME: Final[Validation] = {
    "rule": f"size(self.metadata.name) <= {LONGEST_NAME} && "
    f"self.metadata.name.matches('{NAME_PATTERN}')",
    "message": f"metadata.name must be at most {LONGEST_NAME} characters a-z, 0-9 and '-', begin "
    "with a letter and end with a letter or digit",
}


def of_section(schema: dict[str, Any]) -> list[Validation]:
    """The rules of a section of which one field, or at least one field, must be given.

    Null counts as not given, so the number of properties says nothing.
    """
    names = list(schema.get("properties", {}))
    exactly_one = schema.get(EXACTLY_ONE)
    if exactly_one is None and schema.get("maxProperties") == 1:
        exactly_one = names
    if exactly_one is not None:
        return [_given(exactly_one, "exactly one of", "== 1")]
    if schema.get("minProperties") == 1:
        return [_given(names, "at least one of", ">= 1")]
    return []


def of_spec(schema: dict[str, Any]) -> list[Validation]:
    """The rules of a whole spec: those between sections, and what may not change."""
    between = [
        {"rule": rule.expression, "message": rule.statement.replace("`", "")}
        for rule in rules.RULES
        if rule.expression and rule.severity is Severity.ERROR
    ]
    return [*between, _unchanged(list(_fixed(schema, ())), _unseen(schema))]


def _given(names: Sequence[str], words: str, condition: str) -> Validation:
    counted = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in names)
    wanted = names[0] if len(names) == 1 else f"{words} {', '.join(names)}"
    return {"rule": f"{counted} {condition}", "message": f"must have {wanted}"}


def _unseen(schema: dict[str, Any]) -> list[str]:
    """The fields of a section that the language does not see, since they have no type."""
    return [name for name, inner in schema["properties"].items() if not _is_seen(inner)]


def _is_seen(schema: dict[str, Any]) -> bool:
    return "type" in schema or "x-kubernetes-int-or-string" in schema


def _fixed(schema: dict[str, Any], around: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The outermost paths in which nothing may change, of those that the language sees."""
    for name, inner in schema["properties"].items():
        if not _is_seen(inner):
            continue
        path = (*around, name)
        within = any(each[: len(path)] == path for each in CHANGEABLE | WHILE_SUSPENDED)
        if not within or path in WHILE_SUSPENDED:
            yield path
        elif path not in CHANGEABLE:
            yield from _fixed(inner, path)


def _unchanged(paths: Sequence[tuple[str, ...]], unseen: Sequence[str]) -> Validation:
    """One rule for all of them, which a status that is written asks for one comparison.

    Each access to a field costs the API server a copy of the list of all fields beside it. What the
    language does not see has changed where the spec has, and nothing else in it. Beside another
    change it is let through; the operator keeps to what it has made.
    """
    same = {".".join(path): _allowed(path) for path in paths}
    changed = " : ".join(f"!{rule} ? '{field}'" for field, rule in same.items())
    remedy = "cannot be changed: delete the job and create it again"
    may = [_same(".".join(path)) for path in sorted(CHANGEABLE | WHILE_SUSPENDED)]
    nothing_else = [f"!({' && '.join(may)})"] if unseen else []
    return {
        "rule": f"self == oldSelf || ({' && '.join([*same.values(), *nothing_else])})",
        "message": f"spec {remedy}",
        "messageExpression": f"'spec.' + ({changed} : '{' or '.join(unseen)}') + ' {remedy}'",
    }


def _allowed(path: tuple[str, ...]) -> str:
    same = _same(".".join(path))
    return f"(self.suspend || oldSelf.suspend || {same})" if path in WHILE_SUSPENDED else same


def _same(field: str) -> str:
    """Whether a field is as it was, or was and is not there."""
    new, old = f"self.{field}", f"oldSelf.{field}"
    return f"(has({new}) == has({old}) && (!has({new}) || {new} == {old}))"
