"""What the images install is what the repository's own lock says, package by package."""

import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
IMAGES = REPOSITORY / "images"
LOCKS = [IMAGES / "build.lock", *IMAGES.glob("*/requirements.lock")]


def pinned(lock: Path) -> dict[str, tuple[str, ...]]:
    """Each entry, `name==version ; where`, with its hashes."""
    entries: dict[str, list[str]] = {}
    for line in lock.read_text().splitlines():
        if re.match(r"[a-z0-9]", line):
            entries[line.rstrip(" \\")] = hashes = []
        elif "--hash=" in line:
            hashes.append(line.strip().rstrip(" \\"))
    return {entry: tuple(hashes) for entry, hashes in entries.items()}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~ ]", line)[0].lower() for line in requirements}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: str(lock.relative_to(IMAGES)))
def test_an_image_has_the_versions_and_hashes_of_the_whole_lock(lock: Path) -> None:
    whole = {
        (entry.split()[0], one)
        for entry, hashes in pinned(REPOSITORY / "requirements.lock").items()
        for one in hashes
    }

    found = {(entry.split()[0], one) for entry, hashes in pinned(lock).items() for one in hashes}

    assert found
    assert found <= whole, "`make lock` makes them again"


def test_the_operators_image_has_what_its_extra_names_and_what_reads_manifests() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    lines = (IMAGES / "operator" / "requirements.in").read_text().splitlines()

    wanted = names(project["optional-dependencies"]["operator"]) | {"pydantic", "pyyaml"}

    assert names([line for line in lines if not line.startswith("#")]) == wanted


def test_the_runtimes_image_has_what_examples_and_object_stores_need() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    entries = pinned(IMAGES / "runtime" / "requirements.lock")

    found = {entry.partition("==")[0] for entry in entries}

    assert found >= names(extras["examples"]) | names(extras["object-stores"])


def test_the_operators_image_has_no_pytorch() -> None:
    entries = pinned(IMAGES / "operator" / "requirements.lock")

    assert not [entry for entry in entries if entry.startswith(("torch", "nvidia", "triton"))]
