"""A process of a replica that evaluates a divided model for a command, without a job around it."""

import json
import time
from dataclasses import asdict

from disttrain.groups import steps
from disttrain.groups.errors import GroupLost
from disttrain.groups.meeting import FolderMeeting
from disttrain.groups.steps import Collective, Leader
from disttrain.job import defaults
from disttrain.launch import atomic_file
from disttrain.launch.config import Evaluation, LaunchConfig
from disttrain.launch.exit_code import ExitCode
from disttrain.replica import evaluation, forming, model_tensors, task_calls
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
    model = task.model(spec.seed)
    if not config.partition:
        # The others get theirs from this one.
        model_tensors.load(model, told.model_file, spec.task.frozen)
        told.model_file.unlink()
    device = task_calls.resolve_device(config.device, autocasts=defaults.autocasts(spec))
    division = Division(model.to(device), spec.replicas, told.sample, device)
    try:
        # The command ends this process if it has to end.
        group = forming.connected(config, FolderMeeting(told.meeting, time.sleep))
        if config.partition:
            return steps.follow(group, FollowingPartition(division, group).step)
        sums = _measured(task, division, group, told.batch_size)
    except GroupLost as error:
        LOG.warning("its group is over", error=error)
        return ExitCode.RESTART
    atomic_file.replace(told.result, json.dumps(asdict(sums)).encode())
    return ExitCode.COMPLETE


def _measured(task: TaskCalls, division: Division, group: Collective, batch_size: int) -> Sums:
    leader, model = Leader(group), division.model
    computing = DividedModel(division, leader).evaluating(model)
    examples, place = task.examples(Split.TEST, 1), task_calls.mover(division.device)
    sums = evaluation.evaluate(task, model, examples, batch_size, place, computing)
    leader.end(ExitCode.COMPLETE)
    return sums
