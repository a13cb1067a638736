"""A batch with fewer groups of portions than replicas."""

import pytest

from disttrain.job import parsing
from disttrain.job.finding import Severity

TEXT = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {{name: convex}}
spec:
  task: {{entrypoint: convex:Convex}}
  strategy:
    sandblaster:
      batchSize: {batch}
      portionSize: 16
      pushEveryPortions: 2
      optimizer: {{lbfgs: {{}}}}
  stop: {{iterations: 5}}
  replicas: {{count: {replicas}}}
"""


@pytest.mark.parametrize(
    ("batch", "replicas", "said"),
    [
        (96, 3, None),
        (96, 5, "makes 3 groups of portions for 5 replicas, so that 2 of them have nothing to do"),
        (97, 4, None),
        ("all", 50, None),
    ],
)
def test_replicas_without_work_are_a_warning(
    batch: int | str, replicas: int, said: str | None
) -> None:
    (parsed,) = parsing.parse_jobs(TEXT.format(batch=batch, replicas=replicas))
    assert parsed.job is not None
    assert [finding.severity for finding in parsed.findings] == [Severity.WARNING] * bool(said)
    for finding in parsed.findings:
        assert said is not None
        assert said in finding.message
        assert "strategy.sandblaster.batchSize" in str(finding)
