"""What documents show is true: manifests are valid, programs compile, links lead somewhere.

README's own job is run (tests/integration/test_readme.py), monitoring's configuration too, and what
a newcomer types first (tests/integration/test_getting_started.py).
"""

import ast
import pkgutil
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders.jobs import BATCH, SMALL
from disttrain.cli.app import loaded
from disttrain.cli.table import COMMANDS
from disttrain.job.parsing import parse_job
from disttrain.job.spec import KIND

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")


def blocks(language: str) -> list[Any]:
    return list(_blocks(language))


def _blocks(language: str) -> Iterator[Any]:
    for document in DOCUMENTS:
        found = [each for each in BLOCK.finditer(document.read_text()) if each[2] == language]
        for number, block in enumerate(found):
            name = f"{document.relative_to(ROOT)}-{number}"
            yield pytest.param(textwrap.dedent(block[3]), id=name)


def merged(whole: Any, part: Any) -> Any:
    if not (isinstance(whole, dict) and isinstance(part, dict)):
        return part
    return whole | {name: merged(whole.get(name), value) for name, value in part.items()}


def as_job(shown: dict[str, Any]) -> dict[str, Any] | None:
    """A manifest with what a block shows of one; None if it is about something else."""
    if shown.get("kind") == "AppWrapper":
        (component,) = shown["spec"]["components"]
        shown = component["template"]
    if shown.get("kind", KIND) != KIND:
        return None
    if "task" in shown.get("spec", {}) and "kind" in shown:
        return shown
    if "sandblaster" in shown:
        shown = {"spec": {"strategy": shown}}
    if "spec" not in shown:
        return None
    job: dict[str, Any] = merged(
        yaml.safe_load(BATCH if "sandblaster" in str(shown) else SMALL), shown
    )
    chosen = shown["spec"].get("strategy") or job["spec"]["strategy"]
    job["spec"]["strategy"] = {name: job["spec"]["strategy"][name] for name in chosen}
    return job


@pytest.mark.parametrize("text", blocks("yaml"))
def test_a_manifest_that_is_shown_is_valid(text: str) -> None:
    job = as_job(yaml.safe_load(text))
    if job is not None:
        parse_job(yaml.safe_dump(job))


@pytest.mark.parametrize("text", blocks("python"))
def test_a_program_that_is_shown_compiles_and_its_names_are_there(text: str) -> None:
    ast.parse(text)
    for name in re.findall(r"\bdisttrain(?:\.\w+)+", text):
        pkgutil.resolve_name(name)


def commands() -> list[Any]:
    """What is typed at `disttrain`, once each."""
    typed = (
        line.removeprefix("$ ")
        for block in blocks("console")
        for line in str(block.values[0]).replace("\\\n", " ").splitlines()
        if line.startswith("$ disttrain ")
    )
    return [pytest.param(line, id=line) for line in sorted(set(typed))]


@pytest.mark.parametrize("line", commands())
def test_a_command_that_is_shown_exists_with_its_options(line: str) -> None:
    _, name, *words = shlex.split(line, comments=True)
    if name == "--version":
        return
    assert name in {known for known, _, _ in COMMANDS}
    known = {option for each in loaded(name).params for option in each.opts}
    asked = {word.partition("=")[0] for word in words if word.startswith("-")}
    assert asked <= known


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_and_links_lead_somewhere(document: Path) -> None:
    text = document.read_text()
    for module, name in re.findall(r"from (disttrain[\w.]*) import (\w+)", text):
        pkgutil.resolve_name(f"{module}:{name}")
    for target, anchor in LINK.findall(BLOCK.sub("", text)):
        file = document.parent / target if target else document
        assert file.exists(), target
        assert not anchor or anchor[1:] in anchors(file), target + anchor


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", document.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_blocks_are_found() -> None:
    shown = [as_job(yaml.safe_load(str(block.values[0]))) for block in blocks("yaml")]
    assert sum(job is not None for job in shown) > 9
    assert len(blocks("python")) > 5
    assert len(commands()) > 20
