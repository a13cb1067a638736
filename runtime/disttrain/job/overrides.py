"""Changes of a manifest from the command line: `spec.replicas.count=4`. Pure."""

import copy
import re
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import JsonValue

from disttrain.job import document, fields, nearest
from disttrain.job.finding import Finding, Path, render

_PART = re.compile(r"(?:^|\.)(?P<name>[^.\[\]=]+)|\[(?P<index>\d{1,9})\]|\['(?P<quoted>[^']*)'\]")


@dataclass(frozen=True, slots=True)
class Overridden:
    """A manifest's value after assignments, with what is wrong with them."""

    value: JsonValue
    paths: frozenset[Path]
    """Paths that were assigned; what is wrong there has no line in the file."""
    findings: tuple[Finding, ...]


class _RefusedError(Exception):
    """An assignment that cannot be made; becomes a finding."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.finding = Finding(path=path, message=message)


def apply(value: JsonValue, assignments: Iterable[str]) -> Overridden:
    """Return a changed copy. An assignment is PATH=VALUE; VALUE is YAML, so null takes away.

    A path has names and indices: `spec.stop.epochs`, `points[0]`, `labels['a.b/c']`. Sections
    that are not there yet are made.
    """
    changed = copy.deepcopy(value)
    paths: set[Path] = set()
    findings: list[Finding] = []
    for assignment in assignments:
        try:
            path, given = _parsed(assignment)
            _check_names(path)
            _assign(changed, path, given)
            paths.add(path)
        except _RefusedError as refused:
            findings.append(refused.finding)
    return Overridden(changed, frozenset(paths), tuple(findings))


def _parsed(assignment: str) -> tuple[Path, JsonValue]:
    target, separator, text = assignment.partition("=")
    path = _path(target)
    if not separator or not path:
        example = "for example spec.replicas.count=4"
        raise _RefusedError((), f"an assignment is PATH=VALUE, {example}, got '{assignment}'")
    documents = document.read(text)
    problems = [finding.message for each in documents for finding in each.findings]
    if problems or len(documents) > 1:
        raise _RefusedError(path, problems[0] if problems else f"must be one value, got '{text}'")
    return path, documents[0].value if documents else None


def _path(target: str) -> Path:
    parts: list[str | int] = []
    end = 0
    while end < len(target):
        match = _PART.match(target, end)
        if match is None:
            return ()
        index = match["index"]
        parts.append(int(index) if index else match["name"] or match["quoted"] or "")
        end = match.end()
    return tuple(parts)


def _check_names(path: Path) -> None:
    for depth, part in enumerate(path):
        section = fields.section_at(path[:depth])
        if section is None:
            return
        known = fields.by_name(section)
        if part not in known:
            raise _RefusedError(path[: depth + 1], _unknown(path, depth, known))


def _unknown(path: Path, depth: int, known: Iterable[str]) -> str:
    in_spec: Path = ("spec", *path)
    if depth == 0 and fields.field_at(in_spec[:2]) is not None:
        return f"unknown field; did you mean '{render(in_spec)}'?"
    return nearest.unknown(str(path[depth]), known)


def _assign(root: JsonValue, path: Path, given: JsonValue) -> None:
    parent = root
    for depth in range(1, len(path)):
        around, parent = parent, _item(parent, path[depth - 1])
        section = fields.section_at(path[:depth])
        if parent is None:
            parent = _put(around, path[:depth], {})
        elif isinstance(parent, str) and section is not None and section.short_form:
            parent = _put(around, path[:depth], {section.short_form: parent})
    _put(parent, path, given)


def _item(parent: JsonValue, part: str | int) -> JsonValue:
    if isinstance(parent, dict) and isinstance(part, str):
        return parent.get(part)
    if isinstance(parent, list) and isinstance(part, int) and part < len(parent):
        return parent[part]
    return None


def _put(parent: JsonValue, path: Path, given: JsonValue) -> JsonValue:
    last = path[-1]
    if isinstance(parent, dict) and isinstance(last, str):
        parent[last] = given
        return given
    if isinstance(parent, list) and isinstance(last, int) and last < len(parent):
        parent[last] = given
        return given
    raise _RefusedError(path, _no_place(parent, path[:-1]))


def _no_place(parent: JsonValue, path: Path) -> str:
    where = render(path) or "the manifest"
    if isinstance(parent, list):
        return f"{where} is a list with {len(parent)} items; give an index from 0, such as [0]"
    if isinstance(parent, dict):
        return f"{where} is a mapping; give the name of a field"
    return f"{where} is a single value and has nothing in it that could be set"
