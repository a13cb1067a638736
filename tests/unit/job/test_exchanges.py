"""How often a replica pushes and fetches by its strategy."""

import pytest

from disttrain.job import parsing
from disttrain.job.strategy_kind import Exchanges

JOB = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: one}
spec:
  task: {entrypoint: "tasks:One"}
  strategy: {STRATEGY}
  stop: {epochs: 1}
"""


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        ("downpour: {}", Exchanges()),
        ("downpour: {pushEvery: 4, fetchEvery: 8}", Exchanges(0.25, 0.125)),
        ("localSteps: {steps: 64, fragments: 4}", Exchanges(1 / 64, 1 / 64, parts=4)),
        ("sandblaster: {pushEveryPortions: 5, optimizer: {lbfgs: {}}}", Exchanges(0.2, 0.2)),
    ],
)
def test_exchanges_are_as_the_strategy_says(strategy: str, wanted: Exchanges) -> None:
    text = JOB.replace("STRATEGY", strategy)
    if "sandblaster" not in strategy:
        text = text.replace("  stop:", "  batchSize: 8\n  stop:")

    assert parsing.parse_job(text, source="job.yaml").spec.strategy.rule.exchanges == wanted
