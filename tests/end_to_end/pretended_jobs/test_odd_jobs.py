"""Jobs that no parser takes are there before the operator starts; it says so, and runs the rest."""

import json
import os
from collections.abc import Iterator
from datetime import timedelta

import pytest

from builders import cluster_jobs, operator_process
from builders.pretended_training import PretendedTraining
from cluster import Kubectl, namespaces

LIMIT = timedelta(seconds=120)
"""For what takes five seconds on cores that nobody else uses."""
ODD = {
    "deep": "[" * 300 + "]" * 300,
    "deeper": "[" * 4_000 + "]" * 4_000,
    "wide": json.dumps([[1]] * 120_000),
    "long": json.dumps("x" * 900_000),
}
CONDITION = '{.status.conditions[?(@.type=="InvalidManifest")].message}'


def an_odd_job(name: str, arguments: str) -> str:
    task = {"entrypoint": "digits:Digits", "arguments": {"a": "HERE"}}
    return json.dumps(cluster_jobs.pretending(name, task=task)).replace('"HERE"', arguments)


@pytest.fixture
def place(
    definition: None, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kubectl]:
    """A namespace with odd jobs, and an operator that started after them."""
    made = namespaces.make(kubectl, f"odd-jobs-{os.urandom(3).hex()}")
    for name, arguments in ODD.items():
        text = an_odd_job(name, arguments)
        made.run("create", "--validate=false", "-f", "-", stdin=text)
    with operator_process.running(made, tmp_path_factory.mktemp("odd") / "operator.log"):
        yield made
    namespaces.remove(kubectl, made.namespace)


@pytest.mark.nightly
def test_odd_jobs_are_told_so_and_others_run(place: Kubectl) -> None:
    for name in ODD:
        place.wait_until("InvalidManifest", f"disttrainjob/{name}", LIMIT)
        told = place.run("get", "disttrainjob", name, "-o", f"jsonpath={CONDITION}")
        assert "levels" in told or "bytes" in told
    good = PretendedTraining(place, "good")
    good.start()
    text = an_odd_job("late", ODD["deeper"])
    place.run("create", "--validate=false", "-f", "-", stdin=text)
    place.wait_until("InvalidManifest", "disttrainjob/late", LIMIT)
