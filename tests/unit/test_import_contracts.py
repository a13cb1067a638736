"""Import contracts forget no package, and the page about folders names each."""

from collections.abc import Iterator
from configparser import ConfigParser, SectionProxy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "runtime"
OPERATOR = ROOT / "operator"
DOORS: dict[str, tuple[Path, set[str]]] = {
    "cryptography": (RUNTIME / "disttrain", set()),
    "terminal": (RUNTIME / "disttrain", {"cli"}),
    "metrics": (RUNTIME / "disttrain", {"telemetry"}),
    "fsspec": (RUNTIME / "disttrain", {"checkpoint", "task"}),
    "kopf": (OPERATOR / "disttrain_operator", {"handlers"}),
}
"""By contract: the package whose packages it is about, and those that have the door."""


def contract(name: str) -> SectionProxy:
    found = ConfigParser()
    found.read(ROOT / ".importlinter")
    return found[f"importlinter:contract:{name}"]


def packages(folder: Path) -> Iterator[str]:
    return (each.parent.name for each in folder.glob("*/__init__.py"))


@pytest.mark.parametrize("name", DOORS)
def test_no_package_is_forgotten_where_a_library_has_one_door(name: str) -> None:
    folder, doors = DOORS[name]
    wanted = {f"{folder.name}.{each}" for each in packages(folder) if each not in doors}
    assert wanted - set(contract(name)["source_modules"].split()) == set()


@pytest.mark.parametrize(
    ("name", "package", "doors"),
    [
        ("fsspec", "checkpoint", {"objects"}),
        ("fsspec", "task", {"files"}),
        ("people", "cluster", {"kubernetes_api"}),
    ],
)
def test_no_module_is_forgotten_beside_a_door(name: str, package: str, doors: set[str]) -> None:
    files = {each.stem for each in (RUNTIME / "disttrain" / package).glob("*.py")}
    wanted = {f"disttrain.{package}.{each}" for each in files - doors - {"__init__"}}
    assert wanted - set(contract(name)["source_modules"].split()) == set()


def test_the_operator_imports_the_manifest_and_errors_alone() -> None:
    forbidden = set(contract("operator")["forbidden_modules"].split())
    wanted = {f"disttrain.{each}" for each in packages(RUNTIME / "disttrain")}
    assert wanted - forbidden == {"disttrain.job"}


def test_the_page_about_folders_has_a_line_for_each() -> None:
    """In the order in which they may import each other."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    told = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    layers = contract("layers")["layers"].replace("|", "\n").split()
    folders = set(packages(RUNTIME / "disttrain"))
    assert told[: len(folders)] == [layer for layer in layers if layer in folders]
