from disttrain.task.task import Batch as Batch
from disttrain.task.task import InputPipeline as InputPipeline
from disttrain.task.task import Split as Split
from disttrain.task.task import Task as Task

__all__ = ["Batch", "InputPipeline", "Split", "Task"]
