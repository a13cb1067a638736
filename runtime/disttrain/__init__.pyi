from disttrain.cluster.client import Client as Client
from disttrain.replica.errors import JobEnded as JobEnded
from disttrain.replica.optimizer import DownpourOptimizer as DownpourOptimizer
from disttrain.task.files import ParquetRows as ParquetRows
from disttrain.task.files import TarSamples as TarSamples
from disttrain.task.files import TextBlocks as TextBlocks
from disttrain.task.files import TextLines as TextLines
from disttrain.task.groups import ParameterGroup as ParameterGroup
from disttrain.task.loss import Loss as Loss
from disttrain.task.loss import LossContext as LossContext
from disttrain.task.sources import Sources as Sources
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
    "ParquetRows",
    "Sources",
    "Split",
    "TarSamples",
    "Task",
    "TextBlocks",
    "TextLines",
]
