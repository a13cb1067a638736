"""How `.venv` is made, by a uv that installs nothing: the index of PyTorch, and no index."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = """#!/bin/sh
echo "$*" >>calls
case "$*" in
venv*) mkdir -p .venv/bin && touch .venv/bin/python && chmod +x .venv/bin/python ;;
*download.pytorch.org*) exit 2 ;;
esac
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the environment is made by, beside a uv that reaches no index of PyTorch's."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "scripts/environment.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "uv").write_text(UV)
    (tmp_path / "bin" / "uv").chmod(0o755)
    return tmp_path


def make(tree: Path, *variables: str, **environment: str) -> tuple[int, str, list[str]]:
    """The exit code, what was said, and what uv was asked for."""
    # Without what the suite's own `make` was called with.
    outer = re.compile("MAKE|TORCH_|PYTHON")
    kept = {name: value for name, value in os.environ.items() if not outer.search(name)}
    path = {"PATH": f"{tree / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["make", *variables, ".venv/ready"],
        cwd=tree,
        env=kept | path | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr, (tree / "calls").read_text().splitlines()


@pytest.mark.parametrize("environment", [{}, {"TORCH_INDEX": ""}])
def test_an_index_that_cannot_be_reached_is_told_first_with_the_remedy(
    tree: Path, environment: dict[str, str]
) -> None:
    code, said, calls = make(tree, "TORCH_BACKEND=cpu", **environment)
    assert code != 0
    assert "name a mirror of it by TORCH_INDEX=URL" in said
    assert [call.split()[0] for call in calls] == ["venv", "pip"], "nothing else is installed"


@pytest.mark.parametrize("more", [(), ("TORCH_BACKEND=cpu",)])
def test_pytorch_comes_from_the_index_that_is_named(tree: Path, more: tuple[str, ...]) -> None:
    code, said, calls = make(tree, "TORCH_INDEX=https://mirror/cpu", *more)
    assert code == 0, said
    (torch,) = [call for call in calls if "torch==" in call]
    assert "--index-url https://mirror/cpu" in torch


def test_without_a_backend_everything_is_the_locks(tree: Path) -> None:
    code, said, calls = make(tree)
    assert code == 0, said
    assert not [call for call in calls if "torch==" in call]
