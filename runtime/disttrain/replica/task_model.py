"""What a process of a replica makes of a job's task without any of its data. It may fail."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from disttrain.job import defaults
from disttrain.job.spec import Spec
from disttrain.launch.config import LaunchConfig
from disttrain.replica import division, model_tensors, task_calls
from disttrain.replica.division import Division, Initialise
from disttrain.replica.model_tensors import ModelTensors
from disttrain.replica.pieces import Sharding
from disttrain.replica.task_calls import TaskCalls
from disttrain.task.groups import GroupFactors

Check = Callable[[Spec, nn.Module, Mapping[str, GroupFactors]], None]
"""What a job's strategies ask of a model and of what its task says of single parameters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskModel:
    """A task that was loaded, and its model."""

    spec: Spec
    task: TaskCalls
    model: nn.Module
    tensors: ModelTensors
    groups: Mapping[str, GroupFactors]
    device: torch.device
    initialise: Initialise | None
    """As in `Division`."""

    def in_partitions(self, sample: tuple[int, ...]) -> Division:
        """How partitions divide it. `sample`: as in `Division`."""
        return Division(self.model, self.spec.replicas, sample, self.device, self.initialise)

    def in_rows(self) -> Sharding:
        """How ranks with FSDP2 do. Raises ModelError."""
        sharding = Sharding(self.model, self.spec.replicas.ranks, self.device, self.initialise)
        sharding.check()
        return sharding

    def tensors_in(self, divided: Division | Sharding) -> ModelTensors:
        """Its tensors, as they lie once it is divided. Raises ModelError."""
        spec = self.spec
        layout = divided.layout(defaults.precision(spec), self.groups, spec.task.frozen)
        layout = replace(layout, own=self.tensors.layout.own)
        return replace(self.tensors, layout=layout)


def make(config: LaunchConfig, check: Check) -> TaskModel:
    """Load a job's task, and make and check its model. Raises a FinalError that says what is wrong.

    Its values lie on no device yet.
    """
    spec = config.job.spec
    task = task_calls.load(config.job, config.task_folder)
    model, initialise = division.made(task, spec)
    groups = task.parameter_groups(model)
    check(spec, model, groups)
    tensors = model_tensors.describe(model, defaults.precision(spec), groups, spec.task.frozen)
    return TaskModel(
        spec=spec,
        task=task,
        model=model,
        tensors=tensors.with_hash(),
        groups=groups,
        device=task_calls.resolve_device(config.device, autocasts=defaults.autocasts(spec)),
        initialise=initialise,
    )
