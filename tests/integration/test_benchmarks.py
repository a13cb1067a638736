"""Every benchmark runs in its small form and prints what it promises, however fast it is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ON_A_CLUSTER = {"operator_scale", "recovery"}
"""Run by the end-to-end tests, which have one."""
BENCHMARKS = [
    path
    for path in sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))
    if path.stem not in ON_A_CLUSTER
]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_small_form_prints_figures_and_bars(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(path), "--quick"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout)
    assert report["bars"], "nothing is held against a bound"
    for bar in report["bars"]:
        assert {"name", "value", "bound", "holds"} <= bar.keys()
        assert isinstance(bar["value"], int | float)


def test_there_are_benchmarks() -> None:
    assert {"data_plane", "overhead", "time_to_accuracy", "startup", "checkpoint", "memory"} <= {
        path.stem for path in BENCHMARKS
    }
