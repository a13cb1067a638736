"""Every benchmark runs in its small form and prints what it promises, however fast it is."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

ON_A_CLUSTER = {"operator_scale", "recovery"}
"""Run by the end-to-end tests, which have one."""
AS_ROOT = {"low_communication"}
"""Makes network namespaces."""
SHORT = {"local_layers", "micro_batches", "model_parallel", "partition_figures"}
"""Their small forms take ten to thirty seconds of a core, those of the others more."""
BENCHMARKS = [
    path
    for path in sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))
    if path.stem not in ON_A_CLUSTER
]
FIGURES: Final = {
    "coordinator_away": {
        "tcp": {"seconds_with_coordinator", "seconds_without", "ratio"},
        "sharedMemory": {"seconds_with_coordinator", "seconds_without", "ratio"},
    },
    "simulated_hour": {
        "job": {"simulated_seconds", "pushes", "fetches"},
    },
    "sandblaster": {
        "vectors": {
            "seconds",
            "bound_seconds",
            "fraction_of_copying",
            "orders_per_evaluation",
            "one_by_one_seconds",
            "one_by_one_orders_per_evaluation",
        },
        "stragglers": {"portions", "with_copies_over_ideal", "without_over_ideal"},
    },
    "evaluation_latency": {
        "portions_of_0_ms": {"seconds", "evaluations"},
        "portions_of_10_ms": {"seconds", "evaluations"},
        "traffic": {"bytes_pushed", "bytes_fetched", "pushes", "fetches"},
    },
    "local_layers": {
        part: {"norms_of_copy_bandwidth", "normalising_of_copy_bandwidth"}
        for part in ("first stack", "second stack")
    },
}
"""By their parts: each is a number above 0."""
COUNTS: Final = {
    "control messages per shard and evaluation",
    "fetches per replica and evaluation",
    "pushes per group and evaluation",
}
"""Bars that hold on any machine: what is counted, not timed."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=() if path.stem in SHORT else pytest.mark.nightly)
        for path in BENCHMARKS
    ],
)
def test_small_form_prints_figures_and_bars(path: Path, tmp_path: Path) -> None:
    if path.stem in AS_ROOT and os.geteuid() != 0:
        pytest.skip(f"{path.stem} makes network namespaces, which takes root")
    assert_page = PAGES.get(path.stem)
    options = ["--output", str(tmp_path)] if assert_page else []
    done = subprocess.run(
        [sys.executable, str(path), "--quick", *options],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout)
    assert report["bars"], "nothing is held against a bound"
    for bar in report["bars"]:
        assert {"name", "value", "bound", "holds"} <= bar.keys()
        # Null: not reached, which the small form is too short for.
        assert bar["value"] is None or isinstance(bar["value"], int | float)
        assert bar["holds"] or bar["name"] not in COUNTS, bar
    assert_figures_are_there(report, FIGURES.get(path.stem, {}))
    if assert_report := REPORTS.get(path.stem):
        assert_report(report)
    if assert_page:
        assert_page(report, tmp_path)


def assert_figures_are_there(report: dict[str, Any], wanted: dict[str, set[str]]) -> None:
    for part, names in wanted.items():
        assert names <= report[part].keys()
        for name in names:
            assert math.isfinite(report[part][name]), (part, name)
            assert report[part][name] > 0, (part, name)


def assert_methods_are_beside_each_other(report: dict[str, Any], folder: Path) -> None:
    """Downpour and Sandblaster, each with its row of the table and its part of the pictures."""
    rows = report["methods"]
    kinds = {row["name"].split(",")[0].split(" ")[0] for row in rows}
    assert {"Downpour", "Sandblaster"} <= kinds
    page = (folder / "figures.md").read_text()
    for row in rows:
        assert 0 <= row["best_accuracy"] <= 1
        assert row["samples"] > 0
        assert {"replicas", "seconds_to_accuracy", "samples_to_accuracy"} <= row.keys()
        assert f"| {row['name']} | {row['best_accuracy']:.3f} |" in page
    assert_pictures(
        page, folder, {"accuracy-over-samples", "accuracy-over-seconds", "seconds-over-replicas"}
    )


def assert_replicas_are_beside_each_other(report: dict[str, Any], folder: Path) -> None:
    """A row for one replica and for several, both ways of waiting."""
    assert {(row["replicas"] > 1, row["`maxInFlight`"]) for row in report["runs"]} == {
        (several, in_flight) for several in (False, True) for in_flight in (0, 1)
    }
    page = (folder / "replicas.md").read_text()
    for row in report["runs"]:
        # Points are told apart by chance at first, so that even the small form may miss one half.
        assert row["seconds"] is None or row["seconds"] > 0
        seconds = "not met" if row["seconds"] is None else f"{row['seconds']:,.1f}"
        assert f"| {row['replicas']} | {row['`maxInFlight`']} | {seconds} |" in page
    pictures = {"sleeping-seconds-over-replicas", "sleeping-samples-over-staleness"}
    assert_pictures(page, folder, pictures)


def assert_pictures(page: str, folder: Path, names: set[str]) -> None:
    pictures = sorted(folder.glob("*.svg"))
    assert {path.stem for path in pictures} == names
    for picture in pictures:
        assert "</svg>" in picture.read_text()
        assert f"({picture.name})" in page


def assert_layers_are_beside_the_roofline(report: dict[str, Any]) -> None:
    for stack in ("first stack", "second stack"):
        assert report[stack]["precision"] == "float32"
        for part, names in (
            ("machine", {"flops_per_second", "bytes_per_second"}),
            ("of_roofline", {"w_x", "w_transposed_x", "weight_gradient", "norms"}),
        ):
            assert_figures_are_there(report[stack], {part: names})


def assert_partitions_are_beside_processes(report: dict[str, Any]) -> None:
    """Each network, of which those of the issue's bounds have a bar."""
    rows = {row["model"]: row for row in report["rows"]}
    assert rows.keys() == {
        *("CIFAR-10 network", "local image model", "speech model", "autoencoder")
    }
    names = {
        *("samples_per_second_of_one", "samples_per_second_divided", "samples_per_second_apart"),
        *("speed_up", "of_two_processes", "samples_per_second_without_overlap"),
        *("exposed_milliseconds", "exposed_without_overlap", "planned_speed_up"),
        *("planned_of_measured_seconds_of_one", "planned_of_measured_seconds"),
        *("messages_per_step", "bytes_per_step"),
    }
    assert_figures_are_there(rows, dict.fromkeys(rows, names))
    assert len(report["bars"]) == 3


def assert_slices_are_beside_what_they_allow(report: dict[str, Any]) -> None:
    rows = {f"{row['model']}, {row['slices']}": row for row in report["rows"]}
    assert rows.keys() == {
        f"{model}, {slices}"
        for model in ("eight convolutions", "four dense layers")
        for slices in (1, 2, 4, 8)
    }
    names = {"times_one_process", "of_two_processes", "planned_times_one_process", "at_most"}
    assert_figures_are_there(rows, dict.fromkeys(rows, names))
    # A bar's value is the best of the convolutions.
    (bar,) = report["bars"]
    of_two = [row["of_two_processes"] for name, row in rows.items() if "convolutions" in name]
    assert bar["value"] == max(of_two)


REPORTS: Final = {
    "local_layers": assert_layers_are_beside_the_roofline,
    "model_parallel": assert_partitions_are_beside_processes,
    "micro_batches": assert_slices_are_beside_what_they_allow,
}
"""What has to be in the report beside figures of its parts."""
PAGES: Final = {
    "methods": assert_methods_are_beside_each_other,
    "replicas": assert_replicas_are_beside_each_other,
}
"""What the page has to show that a benchmark leaves."""


def test_there_are_benchmarks() -> None:
    wanted = {
        "data_plane",
        "overhead",
        "time_to_accuracy",
        "startup",
        "checkpoint",
        "memory",
        "defaults",
    }
    assert wanted | FIGURES.keys() | PAGES.keys() <= {path.stem for path in BENCHMARKS}
