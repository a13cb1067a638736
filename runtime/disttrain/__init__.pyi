from disttrain.replica.optimizer import DownpourOptimizer as DownpourOptimizer
from disttrain.task.task import Batch as Batch
from disttrain.task.task import InputPipeline as InputPipeline
from disttrain.task.task import Split as Split
from disttrain.task.task import Task as Task

__all__ = ["Batch", "DownpourOptimizer", "InputPipeline", "Split", "Task"]
