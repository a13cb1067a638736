"""What is installed is what a lock says, package by package and with its hash."""

import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
IMAGES = REPOSITORY / "images"
LOCKS = [IMAGES / "build.lock", *IMAGES.glob("*/requirements.lock")]
EVERY_LOCK = [REPOSITORY / "requirements.lock", *LOCKS, *(REPOSITORY / "scripts").glob("*.lock")]
CONTAINERFILES = sorted(IMAGES.glob("*/Containerfile"))
SCRIPTS = [*CONTAINERFILES, *IMAGES.glob("*.sh"), *(REPOSITORY / "scripts").glob("*.sh")]
WITHOUT_HASH = {
    '--index-url "$TORCH_INDEX"': "PyTorch's CPU build, which only its own index knows",
    "--editable .": "our own code",
    "/build/wheels/disttrain-": "our own code",
    '--wheel-dir /build/wheels "$1"': "our own code",
}


def installing(script: Path) -> list[str]:
    """The commands in it that fetch packages; functions that only hand arguments on are none."""
    commands = re.sub(r"\\\n\s*", "", script.read_text()).splitlines()
    fetching = re.compile(r"\bpip\b.* (install|sync|wheel) |^ *install |\b(uv tool|uvx|uv run) ")
    found = [each for each in commands if fetching.search(each) and not each.startswith("#")]
    return [each for each in found if not each.endswith('"$@"')]


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


@pytest.mark.parametrize("lock", EVERY_LOCK, ids=lambda lock: str(lock.relative_to(REPOSITORY)))
def test_every_entry_of_a_lock_is_one_version_with_hashes(lock: Path) -> None:
    entries = pinned(lock)

    assert entries
    assert all("==" in entry and hashes for entry, hashes in entries.items())


def test_every_lock_is_looked_at() -> None:
    tracked = set(REPOSITORY.glob("[!.]*/**/*.lock")) - {*EVERY_LOCK}

    assert not tracked


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.relative_to(REPOSITORY)))
def test_what_installs_packages_asks_for_their_hashes(script: Path) -> None:
    for command in installing(script):
        excused = [part for part in WITHOUT_HASH if part in command]
        assert ("--require-hashes" in command) != bool(excused), command


def test_the_commands_that_install_packages_are_found() -> None:
    found = [command for script in SCRIPTS for command in installing(script)]

    assert sum("--require-hashes" in command for command in found) >= 8
    assert all(any(part in command for command in found) for part in WITHOUT_HASH)


@pytest.mark.parametrize("file", CONTAINERFILES, ids=lambda file: file.parent.name)
def test_an_image_is_built_from_a_digest(file: Path) -> None:
    text = file.read_text()

    bases = set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) - {"scratch"}
    assert bases <= {"${BASE_IMAGE}"}
    for default in re.findall(r"^ARG BASE_IMAGE=(.*)", text, re.MULTILINE):
        assert re.fullmatch(r"docker\.io/library/python@sha256:[0-9a-f]{64}", default)
