"""The rule that every fault test audits the run that it disturbed."""

import ast
import re
from pathlib import Path

import pytest

INTEGRATION = Path(__file__).parents[2] / "integration"
DISTURBS = re.compile(r"\.kill\(|kill_launcher\(|\.interrupt\(|SIGKILL|SIGSTOP")
AUDITS = re.compile(r"assert_promises_held\(\)|audited\(|\"audit\"")


@pytest.mark.parametrize("file", sorted(INTEGRATION.glob("test_*.py")), ids=lambda file: file.stem)
def test_a_fault_test_audits_its_run_or_says_why_it_cannot(file: Path) -> None:
    text = file.read_text()
    if not DISTURBS.search(text):
        return
    said = ast.get_docstring(ast.parse(text)) or ""
    assert AUDITS.search(text) or "`disttrain audit`" in said
