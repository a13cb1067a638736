"""The benchmark of deaths in real pods runs in its small form and prints what it promises."""

import json
import sys
from datetime import timedelta

import pytest

from builders import mortal, product_images
from cluster import Cluster, commands

LIMIT = timedelta(minutes=6)
BENCHMARK = product_images.REPOSITORY / "tests" / "benchmarks" / "recovery.py"


@pytest.mark.nightly
@pytest.mark.timeout(400, func_only=True)
def test_small_form_prints_figures_and_bars(own_cluster: Cluster) -> None:
    benchmark = mortal.command(sys.executable, BENCHMARK, "--quick", "--cluster=existing")
    printed = commands.run(*benchmark, limit=LIMIT)

    report = json.loads(printed)
    assert {death["role"] for death in report["deaths"]} == {"shard", "replica"}
    assert all(death["seconds"] > 0 for death in report["deaths"])
    assert report["bars"]
