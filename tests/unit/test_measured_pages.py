"""The page that a benchmark wrote is what it writes today: nobody edited it, and it is not old."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGES = TESTS.parent / "docs" / "methods"


@pytest.fixture(params=["methods", "replicas"])
def benchmark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark's module, at a commit that is nobody's."""
    monkeypatch.syspath_prepend(str(TESTS / "benchmarks"))
    module = importlib.import_module(request.param)
    monkeypatch.setattr(module, "measured_version", lambda: "0" * 10)
    return module


def without_figures(page: str) -> str:
    """The page as every machine would have it, at every commit."""
    page = re.sub(r"at commit [0-9a-f]{10}:", "at commit COMMIT:", page)
    page = re.sub(r"\d+ cores", "CORES", page)
    return re.sub(r"(?<=\| )(?:[\d.,]+|not met)(?= \|)", "FIGURE", page)


def of_methods(module: Any) -> tuple[str, str]:
    """Name and text of the page, with any figures."""
    run = module.Measured(over_seconds=[(1.0, 0.6)], over_samples=[(64, 0.6)], load=1.0)
    runs = {method.name: [run] for method in module.FULL.methods}
    return "figures.md", module.page(module.summary(runs, module.FULL), module.FULL)


def of_replicas(module: Any) -> tuple[str, str]:
    """Name and text of the page, with any figures."""
    cases = [(flight, count) for flight in module.IN_FLIGHT for count in module.FULL.replicas]
    found = {case: [module.Run(1.0, 64, 0)] for case in cases}
    return "replicas.md", module.page(found, module.FULL)


def test_a_page_is_what_its_benchmark_writes(benchmark: Any) -> None:
    name, written = {"methods": of_methods, "replicas": of_replicas}[benchmark.__name__](benchmark)

    assert without_figures((PAGES / name).read_text()) == without_figures(written)


@pytest.mark.parametrize("name", ["figures.md", "replicas.md", "partitions.md", "README.md"])
def test_a_page_shows_pictures_that_exist(name: str) -> None:
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", (PAGES / name).read_text())

    assert pictures
    assert [picture for picture in pictures if not (PAGES / picture).is_file()] == []
