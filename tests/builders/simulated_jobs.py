"""Jobs whose runs are simulated in virtual time."""

from typing import Any

from disttrain.job.spec import DistTrainJob
from disttrain.replica.task_calls import TaskCalls
from disttrain.simulation.setting import Setting, prepare
from disttrain.task.task import Task
from tasks.proving import Proving

SAMPLES = 800
SGD_ALONE = {"downpour": {"maxInFlight": 0, "optimizer": {"sgd": {"learningRate": 0.05}}}}


def a_setting(task: Task | None = None, **spec: Any) -> Setting:
    """What a run of `task` with these sections of a spec is simulated by."""
    whole = {
        "task": {"entrypoint": "proving:Proving"},
        "strategy": SGD_ALONE,
        "batchSize": 8,
        "portionSize": 80,
        "stop": {"epochs": 2},
        "evaluation": None,
        "parameterServer": {"shards": 3},
        "replicas": {"count": 1, "device": "cpu"},
        **spec,
    }
    job = DistTrainJob.model_validate(
        {
            "apiVersion": "disttrain.dev/v1alpha1",
            "kind": "DistTrainJob",
            "metadata": {"name": "proving"},
            "spec": whole,
        }
    )
    return prepare(job, TaskCalls(task or Proving()))
