"""`make test-cluster` with a pytest that only says how it ended: what make takes for a failure."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHARED, ALONE = "and not alone", "and alone"
SCRIPT = """#!/bin/sh
case "$*" in *"{part}"*) exit {code};; esac
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def ends_well(folder: Path, part: str, code: int) -> bool:
    """Whether make does, if the tests of that part end with that code and all others with 0."""
    for program in ("pytest", "python"):
        file = folder / program
        file.write_text(SCRIPT.format(part=part, code=code))
        file.chmod(0o755)
    # The Makefile's programs are beside it.
    command = ["make", "-o", ".venv/ready", f"BIN={os.path.relpath(folder, ROOT)}", "test-cluster"]
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    return done.returncode == 0


def test_it_is_no_failure_that_no_test_is_to_run_alone(tmp_path: Path) -> None:
    assert ends_well(tmp_path, ALONE, 5)
    assert ends_well(tmp_path, ALONE, 0)


@pytest.mark.parametrize("code", [1, 2, 3, 4, 6, 137])
def test_every_other_end_of_them_is_one(tmp_path: Path, code: int) -> None:
    assert not ends_well(tmp_path, ALONE, code)


@pytest.mark.parametrize("code", [1, 5])
def test_there_are_always_tests_that_share_the_cluster(tmp_path: Path, code: int) -> None:
    assert not ends_well(tmp_path, SHARED, code)
