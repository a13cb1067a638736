"""What a newcomer types on one machine answers as docs/getting_started.md shows it."""

import os
import re
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from builders import commands

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "getting_started.md").read_text()
README: Final = (ROOT / "README.md").read_text()
FIGURES: Final = " · "
"""In lines of the display, which come as fast as the machine is."""
BAD: Final = [("batchSize", "batchsize"), ("shards: 2", "shards: two")]
"""What the page has in its manifest with mistakes."""


class Shown(NamedTuple):
    """A command of the page and the lines of its answer that are the same on every machine."""

    command: str
    lines: list[str]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def shown(section: str) -> list[Shown]:
    """The commands of a section, from its heading to the next."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found: list[Shown] = []
    for line in "".join(blocks(text, "console")).splitlines():
        if line.startswith("$ "):
            found.append(Shown(line.removeprefix("$ "), []))
        elif found and line != "..." and FIGURES not in line:
            found[-1].lines.append(without_figures(line))
    return found


def without_figures(text: str) -> str:
    return re.sub(r"[\d.,]+", "N", re.sub(r" +", " ", text)).strip()


def answered(each: Shown, folder: Path) -> None:
    """Type it, and see the lines of the page in their order."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = each.command.replace("PATH_OF_THIS_REPOSITORY", str(ROOT))
    answer = commands.run(["sh", "-c", command], folder, environment={**os.environ, "PATH": path})
    said = iter(without_figures(line) for line in (answer.out + answer.err).splitlines())
    for line in each.lines:
        assert line in said, (each.command, line, answer)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A newcomer's, with all files that the page says to copy or save."""
    own = README.partition("## A job of your own\n")[2].partition("\n## ")[0]
    (program,), (manifest,) = blocks(own, "python"), blocks(own, "yaml")
    for right, wrong in BAD:
        assert right in manifest
        (tmp_path / "bad.yaml").write_text(manifest := manifest.replace(right, wrong))
    (tmp_path / "spirals.py").write_text(program)
    (tmp_path / "job.yaml").write_text(blocks(own, "yaml")[0])
    (use,) = blocks(PAGE, "python")
    (tmp_path / "use.py").write_text(use)
    return tmp_path


def test_the_example_is_trained_and_shown(folder: Path) -> None:
    _, activation, *typed = shown("1. An example on this machine")

    assert activation.command.endswith("/.venv/bin/activate")
    assert [each.command.split()[1] for each in typed] == ["--version", "run", "status"]
    for each in typed:
        answered(each, folder)


def test_a_model_of_ones_own_is_checked_trained_and_used(folder: Path) -> None:
    typed = shown("2. Your own model")
    until_it_is_killed = [each for each in typed if "runs/second" not in each.command]

    assert [each.command.split()[1] for each in until_it_is_killed] == [
        "validate",
        "run",
        "use.py",
        "validate",
    ]
    for each in until_it_is_killed:
        answered(each, folder)


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="the page shows a machine without a GPU")
def test_a_gpu_that_is_not_there_is_missed(folder: Path) -> None:
    (run,) = shown("3. A GPU")

    answered(run, folder)


def test_what_would_be_sent_to_a_cluster_is_shown(folder: Path) -> None:
    (dry,) = (each for each in shown("4. A cluster") if "--dry-run=client" in each.command)

    answered(dry, folder)
