"""YAML text to plain values that know their lines, and back. The only module that imports yaml.

What an unquoted text means is decided here, by the core schema of YAML 1.2. No library does that:
PyYAML follows 1.1, and ruamel.yaml takes 010 and 1_000 for numbers, 2024-01-01 for a date. With
ruamel.yaml, which knows lines, too, nothing here would go: it stops at the first name that is given
twice, sets aliases no limit, ends in a RecursionError at many brackets, keeps unknown tags and
halves of characters. It also reads at half the speed and takes longer to import.
"""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import yaml
from pydantic import JsonValue
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from disttrain.job.finding import Finding, Path

Scalar = None | bool | int | float | str

MAX_DIGITS = 300
"""Digits of a whole number. A float reaches 308; Python itself gives up at 4300."""

MAX_BYTES = 2**20
"""Kubernetes refuses objects of more than about 1.5 MB; a manifest has a few kB."""

MAX_DEPTH = 50
"""Levels of nesting; a manifest has about 8."""

MAX_VALUES = 5_000
"""Values after the expansion of aliases, so that a few lines cannot fill the memory, and so that
no file takes more than about a second to read."""

TOO_DEEP = f"more than {MAX_DEPTH} levels of nesting"
TOO_MANY = f"more than {MAX_VALUES} values"

_TOO_MANY = f"too large: {TOO_MANY}, aliases expanded"
_TOO_DEEP = f"nested too deeply: {TOO_DEEP}"

_UNQUOTED = "unquoted"
_KNOWN_TAGS = {_UNQUOTED} | {f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")}

_WORDS: dict[str, bool | None] = {"": None, "~": None}
for _spelled in (str.lower, str.capitalize, str.upper):
    _WORDS |= {_spelled("null"): None, _spelled("true"): True, _spelled("false"): False}

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_INTEGER_WITH_BASE = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?((\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def parse_scalar(text: str) -> Scalar:
    """Return the value of an unquoted text, by the core schema of YAML 1.2.

    So `no`, `1:30`, `010` and `2024-01-01` are texts and 1e-3 is a number, unlike in YAML 1.1.
    ValueError, with the reason, for NaN and too much.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text) or _INTEGER_WITH_BASE.fullmatch(text):
        return _whole_number(text)
    is_number = _FLOAT.fullmatch(text) is not None
    if _NOT_FINITE.fullmatch(text) or (is_number and not math.isfinite(float(text))):
        message = f"must be a finite number, got {text}"
        raise ValueError(message)
    return float(text) if is_number else text


def _whole_number(text: str) -> int:
    if len(text) > MAX_DIGITS:
        message = f"must have at most {MAX_DIGITS} digits, got {len(text)}"
        raise ValueError(message)
    return int(text, 0)


@dataclass(slots=True)
class Document:
    """One YAML document: its value, the line of each path, and what is wrong with it as YAML."""

    value: JsonValue = None
    lines: dict[Path, int] = field(default_factory=dict)
    """Line, from 1, of each field's name, of each item of a list, and of the whole."""
    findings: list[Finding] = field(default_factory=list)

    def line_of(self, path: Path) -> int | None:
        """Return the line of a path, or of the nearest value around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


def read(text: str) -> list[Document]:
    """Return the documents of a YAML text, without the empty ones.

    Mistakes are findings; one that ends the reading is in a last document without a value.
    """
    num_bytes = len(text.encode(errors="replace"))
    if num_bytes > MAX_BYTES:
        return [_refused(f"must be at most {MAX_BYTES} bytes, got {num_bytes}", line=None)]
    documents: list[Document] = []
    try:
        documents.extend(_Builder().build(node) for node in yaml.compose_all(text, _Loader))
    except yaml.MarkedYAMLError as error:
        documents.append(_refused(*_explained(error)))
    except yaml.YAMLError as error:
        documents.append(_refused(f"not YAML: {' '.join(str(error).split())}", line=None))
    return [document for document in documents if document.value is not None or document.findings]


def write(value: JsonValue) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def _refused(message: str, line: int | None) -> Document:
    return Document(findings=[Finding(path=(), message=message, line=line)])


def _explained(error: yaml.MarkedYAMLError) -> tuple[str, int | None]:
    problem = ", ".join(text for text in (error.context, error.problem) if text)
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return f"not YAML: {problem}", None
    if isinstance(error, _BeyondLimitsError):
        return problem, mark.line + 1
    return f"not YAML at column {mark.column + 1}: {problem}", mark.line + 1


def exceeded(value: JsonValue) -> str | None:
    """What is too much about a value; None if it is within the limits. Does not recurse."""
    level, num_values = [value], 0
    for _ in range(MAX_DEPTH + 1):
        num_values += len(level)
        if num_values > MAX_VALUES:
            return TOO_MANY
        level = [inner for each in level for inner in _inner(each)]
        if not level:
            return None
    return TOO_DEEP


def _inner(value: JsonValue) -> Iterable[JsonValue]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


class _BeyondLimitsError(yaml.MarkedYAMLError):
    """The text is YAML, and more than is read."""


class _Loader(yaml.SafeLoader):
    """Composes nodes only; tells unquoted scalars from quoted ones and limits the depth."""

    depth = 0
    num_nodes = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        # PyYAML recurses: without a limit, a file of brackets ends in a RecursionError.
        if self.depth > MAX_DEPTH or self.num_nodes > 2 * MAX_VALUES:
            problem = _TOO_DEEP if self.depth > MAX_DEPTH else _TOO_MANY
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call] # Not in the stubs.
            raise _BeyondLimitsError(problem=problem, problem_mark=mark)
        self.num_nodes += 1
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def resolve(self, kind: type[Node], value: object, implicit: object) -> str:
        if kind is ScalarNode and isinstance(implicit, tuple) and implicit[0]:
            return _UNQUOTED
        resolve: Callable[..., str] = super().resolve
        return resolve(kind, value, (False, True))


_LINE_ENDS = frozenset("\x85\u2028\u2029")
"""Of YAML 1.1; texts may hold them. A newline keeps the style that suits it."""


class _Dumper(yaml.SafeDumper):
    """Quotes what `read` would take for something else than text, by YAML 1.2 as by 1.1."""

    def represent_text(self, text: str) -> ScalarNode:
        quote = None if _is_text(text) else "'"
        if _LINE_ENDS.intersection(text):
            # Only there they are escaped; elsewhere they would be folded into spaces.
            quote = '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=quote)


_Dumper.add_representer(str, _Dumper.represent_text)


def _is_text(unquoted: str) -> bool:
    try:
        return isinstance(parse_scalar(unquoted), str)
    except ValueError:
        return False


def _whole_characters(text: str) -> str:
    """Join the surrogate pairs that JSON writes as two escapes. ValueError for half a pair."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        message = f"must be text, got half a character (a lone surrogate) in {text!a}"
        raise ValueError(message) from error


class _Builder:
    """Turns the nodes of one document into values, and collects lines and mistakes."""

    def __init__(self) -> None:
        self._document = Document()
        self._num_values = 0

    def build(self, root: Node) -> Document:
        self._document.lines[()] = root.start_mark.line + 1
        self._document.value = self._value(root, ())
        return self._document

    def _value(self, node: Node, path: Path) -> JsonValue:
        self._limit(node, path)
        if node.tag not in _KNOWN_TAGS:
            self._refuse(path, node, f"YAML tags are not supported, got {node.tag}")
            return None
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return self._list(node, path)
        return self._scalar(node, path)

    def _limit(self, node: Node, path: Path) -> None:
        self._num_values += 1
        # Aliases can make a value contain itself, or double it many times.
        if len(path) > MAX_DEPTH or self._num_values > MAX_VALUES:
            problem = _TOO_DEEP if len(path) > MAX_DEPTH else _TOO_MANY
            raise _BeyondLimitsError(problem=problem, problem_mark=node.start_mark)

    def _mapping(self, node: MappingNode, path: Path) -> JsonValue:
        values: dict[str, JsonValue] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, path)
            if key is None:
                continue
            if key in values:
                first = self._document.lines[*path, key]
                problem = f"given twice, first in line {first}; keep one of them"
                self._refuse((*path, key), key_node, problem)
                continue
            self._document.lines[*path, key] = key_node.start_mark.line + 1
            values[key] = self._value(value_node, (*path, key))
        return values

    def _key(self, node: Node, path: Path) -> str | None:
        if node.tag == _UNQUOTED and node.value == "<<":
            problem = "YAML merge keys are not supported; write the fields out"
            self._refuse((*path, "<<"), node, problem)
            return None
        key = self._scalar(node, path) if isinstance(node, ScalarNode) else None
        if isinstance(key, str):
            return key
        shown = node.value if isinstance(node, ScalarNode) else "?"
        self._refuse((*path, shown), node, "a field's name must be text; put it in quotes")
        return None

    def _list(self, node: SequenceNode, path: Path) -> JsonValue:
        values: list[JsonValue] = []
        for index, item in enumerate(node.value):
            self._document.lines[*path, index] = item.start_mark.line + 1
            values.append(self._value(item, (*path, index)))
        return values

    def _scalar(self, node: Node, path: Path) -> JsonValue:
        try:
            text = _whole_characters(node.value)
            return parse_scalar(text) if node.tag == _UNQUOTED else text
        except ValueError as error:
            self._refuse(path, node, str(error))
            return None

    def _refuse(self, path: Path, node: Node, message: str) -> None:
        line = node.start_mark.line + 1
        self._document.findings.append(Finding(path=path, message=message, line=line))
