"""Every mutant of the table removes a guard that is there; and what counts as caught."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mutants import trial
from mutants.mutant import Mutant
from mutants.table import MUTANTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_finds_its_guard_once_and_its_tests(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1
    assert mutant.new != mutant.old
    assert all((ROOT / test.partition("::")[0]).exists() for test in mutant.tests)


def test_no_two_mutants_have_one_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_no_mutant_is_caught_by_a_name_that_nobody_knows(tmp_path: Path) -> None:
    for number, mutant in enumerate(MUTANTS):
        text = (ROOT / mutant.file).read_text().replace(mutant.old, mutant.new)
        (tmp_path / f"m{number}.py").write_text(f"# {mutant.name}\n{text}")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821", "--no-cache"]
    done = subprocess.run([*command, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "guard.py").write_text("if is_wrong: refuse()\n")
    return tmp_path


def ending(code: int | None) -> trial.Run:
    return lambda _copy, _tests, _seconds: code


def a_mutant(**fields: Any) -> Mutant:
    usual = {"name": "a wrong one", "file": "guard.py", "old": "if is_wrong", "new": "if False"}
    return Mutant(**{**usual, "tests": ("tests",), **fields})


@pytest.mark.parametrize(
    ("code", "word"), [(1, "caught"), (0, "survived"), (None, "timeout"), (4, "exit 4")]
)
def test_only_a_test_that_fails_catches_a_mutant(copy: Path, code: int | None, word: str) -> None:
    assert trial.verdict(a_mutant(), copy, ending(code), 1.0) == word


def test_tests_that_fail_anyway_catch_nothing(copy: Path) -> None:
    for code in (1, 5, None):
        usual = trial.usual_seconds(("tests",), copy, ending(code))
        assert trial.verdict(a_mutant(), copy, ending(1), usual) == "unsound"
    assert trial.usual_seconds(("tests",), copy, ending(0)) is not None


def test_a_guard_that_is_not_there_is_not_removed(copy: Path) -> None:
    assert trial.verdict(a_mutant(old="if is_bad"), copy, ending(1), 1.0) == "lost"


def test_tests_see_the_mutant_and_nobody_sees_it_afterwards(copy: Path) -> None:
    seen = []

    def run(folder: Path, _tests: tuple[str, ...], _seconds: float) -> int:
        seen.append((folder / "guard.py").read_text())
        return 1

    trial.verdict(a_mutant(), copy, run, 1.0)

    assert seen == ["if False: refuse()\n"]
    assert (copy / "guard.py").read_text() == "if is_wrong: refuse()\n"
