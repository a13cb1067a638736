"""Output folders of runs that never ran: a task, its manifest, and a checkpoint of its model."""

import os
from pathlib import Path

import torch
from torch import nn

from builders import placements
from builders.checkpoints import a_manifest, put_parts
from builders.jobs import SMALL
from disttrain.checkpoint import stores
from disttrain.checkpoint.reading import Checkpoint
from disttrain.checkpoint.stores import Parts
from disttrain.launch.run_folder import RunFolder, RunRecord
from disttrain.replica import model_tensors

TASK = '''\
import torch
from torch import nn
from torch.utils.data import TensorDataset

import disttrain


class Signs(disttrain.Task):
    """Tells whether a number is positive; 40 samples of each split."""

    def __init__(self, width: int = 1) -> None:
        self._width = width

    def model(self):
        return nn.Linear(1, self._width)

    def dataset(self, split):
        numbers = torch.linspace(-1, 1, 40).reshape(-1, 1)
        return TensorDataset(numbers, (numbers > 0).float())

    def loss(self, model, batch):
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    def measure(self, model, batch):
        return {"accuracy": ((model(batch[0])[:, :1] > 0.5) == (batch[1] > 0.5)).sum()}
'''
"""A task in a module of its own name, since a process imports a module once."""


def a_run(folder: Path, module: str, model: nn.Module) -> Path:
    """An output folder `folder/run` with checkpoint 1, which holds this model's values."""
    (folder / f"{module}.py").write_text(TASK)
    manifest = SMALL.replace("digits:Digits", f"{module}:Signs").replace("sgd:", "adagrad:")
    (folder / "job.yaml").write_text(manifest)
    run = RunFolder(folder / "run")
    run.create()
    run.job.write_text(manifest)
    run.record.write_bytes(
        RunRecord(
            job_uid="0123abcd", task_folder=folder, launcher_pid=os.getpid(),
            sockets=folder, cores=2, processes={},
        ).to_json()
    )  # fmt: skip
    checkpoint_of(run.path / "checkpoints", model)
    return run.path


def checkpoint_of(folder: Path, model: nn.Module, number: int = 1) -> Checkpoint:
    """A checkpoint, by two shards, of a model that has parameters alone."""
    layout = model_tensors.describe(model).layout
    parts = [parameter.detach().reshape(-1) for parameter in model.parameters()]
    values = {placements.PARAMETERS: torch.cat(parts).numpy()}
    store = stores.in_folder(folder)
    written = Parts(store.begin(number).storage, number)
    shards = put_parts(written, layout, 2, values)
    return store.commit(a_manifest(shards, layout=layout, number=number))
