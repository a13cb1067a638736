"""Random numbers in a data set: it is read between the steps, and what is waited for comes."""

from pathlib import Path

import pytest

from builders.runs import RunningJob
from tasks import noisy

_JOB = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: noisy}
spec:
  task: {entrypoint: noisy:Noisy}
  evaluation: null
  coordinator: {heartbeatSeconds: 0.2}
  parameterServer: {threads: 1, shards: 2}
  replicas: {count: 2, device: cpu, threads: 1}
"""
SEVERAL_STEPS = f"""{_JOB}
  strategy: {{downpour: {{pushEvery: 4, optimizer: {{sgd: {{learningRate: 0.1}}}}}}}}
  batchSize: 4
  portionSize: 40
  stop: {{epochs: 2}}
"""
BATCH_METHOD = f"""{_JOB}
  strategy:
    sandblaster:
      portionSize: 20
      warmStart: {{samples: 100, batchSize: 4, sgd: {{learningRate: 0.1}}}}
      optimizer: {{lbfgs: {{}}}}
  stop: {{iterations: 2}}
"""


@pytest.mark.parametrize("job", [SEVERAL_STEPS, BATCH_METHOD], ids=["downpour", "sandblaster"])
def test_the_last_steps_are_pushed_before_more_work_is_waited_for(job: str, tmp_path: Path) -> None:
    """Ten steps of a portion are two pushes and two steps more, which nothing else would push."""
    with RunningJob(tmp_path, (), job) as running:
        assert running.wait() == 0, running.printed()
        running.assert_promises_held()
    if job is SEVERAL_STEPS:
        assert running.summary()["samples"] == 2 * noisy.SAMPLES
