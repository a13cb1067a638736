"""Every mutant of the table still removes a guard that is there, and names tests that are."""

from pathlib import Path

import pytest

from mutants.mutant import Mutant
from mutants.table import MUTANTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_finds_its_guard_once_and_its_tests(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1
    assert mutant.new != mutant.old
    assert all((ROOT / test).exists() for test in mutant.tests)


def test_no_two_mutants_have_one_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
