"""A process of a replica that evaluates a divided model for a command, without a job around it."""

import json
import time
from dataclasses import asdict

import torch

from disttrain.groups import steps
from disttrain.groups.errors import GroupLost
from disttrain.groups.meeting import FolderMeeting
from disttrain.groups.steps import Leader
from disttrain.job import defaults
from disttrain.launch import atomic_file
from disttrain.launch.config import Evaluation, LaunchConfig
from disttrain.launch.exit_code import ExitCode
from disttrain.replica import division, evaluation, forming, task_calls
from disttrain.replica.division import Division
from disttrain.replica.evaluation import Sums
from disttrain.replica.partitions import DividedModel, FollowingPartition
from disttrain.replica.task_calls import TaskCalls
from disttrain.task.task import Split
from disttrain.telemetry import logs

LOG = logs.get(__name__)


def main(config: LaunchConfig, told: Evaluation) -> int:
    """Take part until all is measured; the exit code. Raises FinalError."""
    spec = config.job.spec
    task = task_calls.load(config.job, config.task_folder)
    model, initialise = division.made(task, spec)
    device = task_calls.resolve_device(config.device, autocasts=defaults.autocasts(spec))
    divided = Division(model, spec.replicas, told.sample, device, initialise)
    layout = divided.layout(defaults.precision(spec), {}, spec.task.frozen)
    try:
        # The command ends this process if it has to end.
        group = forming.connected(config, FolderMeeting(told.meeting, time.sleep))
        if config.partition:
            return steps.follow(group, FollowingPartition(divided, group, layout).step)
        made = DividedModel(divided, Leader(group), layout)
        sums = _measured(task, made, told, device)
    except GroupLost as error:
        LOG.warning("its group is over", error=error)
        return ExitCode.RESTART
    told.model_file.unlink()
    atomic_file.replace(told.result, json.dumps(asdict(sums)).encode())
    return ExitCode.COMPLETE


def _measured(task: TaskCalls, made: DividedModel, told: Evaluation, device: torch.device) -> Sums:
    examples, place = task.examples(Split.TEST, 1), task_calls.mover(device)
    with made.loaded(str(told.model_file)) as model:
        computing = made.evaluating(model)
        sums = evaluation.evaluate(task, model, examples, told.batch_size, place, computing)
    made.end(ExitCode.COMPLETE)
    return sums
