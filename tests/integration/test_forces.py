"""A loss that takes derivatives by itself trains and is evaluated, at the end too."""

from pathlib import Path

from builders.runs import RunningJob

JOB = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: forces}
spec:
  task: {entrypoint: forces:Forces}
  strategy: {downpour: {}}
  batchSize: 8
  stop: {epochs: 4}
  replicas: {device: cpu}
"""


def test_a_loss_that_takes_derivatives_trains_and_is_evaluated(tmp_path: Path) -> None:
    with RunningJob(tmp_path, (), JOB) as job:
        assert job.wait() == 0
        summary = job.summary()
        job.assert_promises_held()

    assert summary["phase"] == "Complete"
    assert summary["evaluations"] >= 1
    assert summary["finalLoss"] < 1.0
