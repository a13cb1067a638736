"""The benchmark of deaths in real pods runs in its small form and prints what it promises."""

import json
import sys
from datetime import timedelta

import pytest

from builders import mortal, product_images
from cluster import Kubectl, commands
from cluster.hooks import Hooks

LIMIT = timedelta(minutes=6)
BENCHMARK = product_images.REPOSITORY / "tests" / "benchmarks" / "recovery.py"


@pytest.mark.nightly
def test_small_form_prints_figures_and_bars(kubectl: Kubectl, image_tools: Hooks) -> None:
    benchmark = mortal.command(sys.executable, BENCHMARK, "--quick", "--cluster=existing")
    variables = {"KUBECONFIG": str(kubectl.kubeconfig), **image_tools.variables()}
    printed = commands.run(*benchmark, environment=variables, limit=LIMIT)

    report = json.loads(printed)
    assert {death["role"] for death in report["deaths"]} == {"shard", "replica"}
    assert all(death["seconds"] > 0 for death in report["deaths"])
    assert report["bars"]
