"""The rule that every fault test audits the run that it disturbed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

INTEGRATION = Path(__file__).parents[2] / "integration"
DISTURBS = re.compile(r"\bkill(_\w+)?\(|\.interrupt\(|send_signal\(|SIGKILL|SIGSTOP")
AUDITS = re.compile(r"assert_promises_held\(\)|audited\(|'audit'")
EXCUSE = "`disttrain audit`"

Functions = dict[str, ast.FunctionDef]


def unaudited(text: str) -> list[str]:
    """The tests of a file that disturb a run, audit none and do not say why they cannot."""
    module = ast.parse(text)
    if EXCUSE in (ast.get_docstring(module) or ""):
        return []
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    tests = [function for name, function in functions.items() if name.startswith("test_")]
    return [test.name for test in tests if _is_unaudited(test, functions)]


def _is_unaudited(test: ast.FunctionDef, functions: Functions) -> bool:
    code = "\n".join(ast.unparse(used) for used in _used(test, functions, set()))
    excused = EXCUSE in (ast.get_docstring(test) or "")
    return bool(DISTURBS.search(code)) and not AUDITS.search(code) and not excused


def _used(
    function: ast.FunctionDef, functions: Functions, seen: set[str]
) -> Iterator[ast.FunctionDef]:
    """A function, and those of its file that it names: calls, fixtures, rows of its table."""
    seen.add(function.name)
    yield function
    nodes = list(ast.walk(function))
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    names += [node.arg for node in nodes if isinstance(node, ast.arg)]
    for name in names:
        if name in functions and name not in seen:
            yield from _used(functions[name], functions, seen)


@pytest.mark.parametrize("file", sorted(INTEGRATION.glob("test_*.py")), ids=lambda file: file.stem)
def test_a_fault_test_audits_its_run_or_says_why_it_cannot(file: Path) -> None:
    assert unaudited(file.read_text()) == []


FAULT_TESTS = '''
@pytest.fixture
def killed(job):
    job.kill("shard-0")

def test_of_a_fixture(killed):
    assert killed

def die(job):
    job.interrupt()

@pytest.mark.parametrize("end", [die])
def test_of_a_table(end):
    end(job)

def test_with_audit(job):
    die(job)
    job.assert_promises_held()

def test_with_reason(killed):
    """There is no ledger for `disttrain audit` yet."""

def test_without_fault(job):
    job.wait()
'''


def test_each_test_audits_for_itself() -> None:
    assert unaudited(FAULT_TESTS) == ["test_of_a_fixture", "test_of_a_table"]
    assert unaudited(f'"""Stand-ins: nothing for {EXCUSE}."""\n{FAULT_TESTS}') == []
