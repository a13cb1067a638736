"""DistTrain: asynchronous parameter-server training of PyTorch models.

What users write programs with is here; its types stand in `__init__.pyi`. The names are looked up
when they are first used, because the command line and the coordinator do not import torch.
"""

import importlib

_HOMES = {
    "Batch": "disttrain.task.task",
    "Client": "disttrain.cluster.client",
    "DownpourOptimizer": "disttrain.replica.optimizer",
    "InputPipeline": "disttrain.task.task",
    "JobEnded": "disttrain.replica.errors",
    "Loss": "disttrain.task.loss",
    "LossContext": "disttrain.task.loss",
    "ParameterGroup": "disttrain.task.groups",
    "ParquetRows": "disttrain.task.files",
    "Sources": "disttrain.task.sources",
    "Split": "disttrain.task.task",
    "TarSamples": "disttrain.task.files",
    "Task": "disttrain.task.task",
    "TextBlocks": "disttrain.task.files",
    "TextLines": "disttrain.task.files",
}

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


def __getattr__(name: str) -> object:
    """Import the module that a public name lies in."""
    if name not in _HOMES:
        message = f"module '{__name__}' has no attribute '{name}'"
        raise AttributeError(message)
    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
