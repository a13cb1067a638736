from disttrain.cluster.client import Client as Client
from disttrain.replica.errors import JobEnded as JobEnded
from disttrain.replica.optimizer import DownpourOptimizer as DownpourOptimizer
from disttrain.task.groups import ParameterGroup as ParameterGroup
from disttrain.task.loss import Loss as Loss
from disttrain.task.loss import LossContext as LossContext
from disttrain.task.task import Batch as Batch
from disttrain.task.task import InputPipeline as InputPipeline
from disttrain.task.task import Split as Split
from disttrain.task.task import Task as Task

__all__ = [
    "Batch",
    "Client",
    "DownpourOptimizer",
    "InputPipeline",
    "JobEnded",
    "Loss",
    "LossContext",
    "ParameterGroup",
    "Split",
    "Task",
]
