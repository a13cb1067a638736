"""The benchmark of many jobs runs in its small form and prints what it promises."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from builders import mortal, product_images, shared_cluster
from cluster import prerequisites

LIMIT_SECONDS = 600
BENCHMARK = product_images.REPOSITORY / "tests" / "benchmarks" / "operator_scale.py"
APART = "mount -t sysfs sysfs /sys && ip link set lo up && exec "
"""Beside the machine's cluster: the addresses of both are the same, their networks are not."""


@pytest.mark.nightly
@pytest.mark.timeout(LIMIT_SECONDS + 60, func_only=True)
def test_small_form_prints_figures_and_bars(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    reason = prerequisites.reason_against()
    if reason is not None:
        shared_cluster.there_is_none(request.config, reason)
    script = f"{APART} {sys.executable} {BENCHMARK} --quick --jobs 3 --large 20"

    done = subprocess.run(
        # Told to end, and not killed, it stops its control plane.
        mortal.command(
            "timeout",
            "--kill-after=30",
            str(LIMIT_SECONDS),
            "unshare",
            "--net",
            "--mount",
            "sh",
            "-c",
            script,
            number=signal.SIGTERM,
        ),
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout)
    figures = report["3 jobs"]
    assert figures["running_seconds"] > 0
    assert figures["large_running_seconds"] > 0
    assert figures["collected_seconds"] > 0
    assert figures["requests_per_job"] > 5
    assert figures["ttl_late_seconds"] >= figures["ttl_late_p50_seconds"] > -2
    assert figures["running_requests_per_job"] < figures["requests_per_job"]
    assert {"script", "jobset", "tfjob"} == set(report["left_out"]) | contenders_in(figures)
    # Nobody has a bound against the third.
    assert len(report["bars"]) == 7 + len(contenders_in(figures) - {"tfjob"})


def contenders_in(figures: dict[str, Any]) -> set[str]:
    """Those that ran, and how long they took."""
    ran: set[str] = {name for name in ("script", "jobset", "tfjob") if name in figures}
    for name in ran:
        assert figures[name]["running_seconds"] > 0
        assert figures[f"ratio_to_{name}"] > 0
    return ran
