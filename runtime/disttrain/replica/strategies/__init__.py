"""What a replica does for each strategy, one module each; nobody else asks for them."""

from collections.abc import Mapping
from functools import partial

from torch import nn

from disttrain.job import defaults, subclasses
from disttrain.job.spec import Spec
from disttrain.replica.stepped_training import SteppedTraining
from disttrain.replica.training import Stages, Training, TrainingInputs
from disttrain.task.errors import GroupsError
from disttrain.task.groups import NO_GROUP, GroupFactors

_TRAININGS = {training.of: training for training in subclasses.found(__name__, Training)}


def training(given: TrainingInputs) -> Stages:
    return Stages(
        [
            partial(_TRAININGS[type(stage.strategy.rule)], given._replace(spec=stage))
            for stage in defaults.stages(given.spec)
        ]
    )


def stepped(spec: Spec) -> type[SteppedTraining]:
    """The training of a job with one stage, of a strategy whose replicas take steps."""
    found = _TRAININGS[type(spec.strategy.rule)]
    assert issubclass(found, SteppedTraining)  # noqa: S101  Who asks serves no other.
    return found


def outgoing_buffers(spec: Spec) -> int:
    """How many pushes a replica has memory for, by the first stage of a job."""
    found = _TRAININGS[type(spec.strategy.rule)]
    return found.outgoing_buffers(spec) if issubclass(found, SteppedTraining) else 0


def check_task(spec: Spec, model: nn.Module, groups: Mapping[str, GroupFactors]) -> None:
    """Raises a FinalError for what a strategy of the job cannot train.

    `groups`: the factors of the task's parameters, by name.
    """
    apart = next((name for name, factors in groups.items() if factors != NO_GROUP), None)
    for stage in defaults.stages(spec):
        strategy = stage.strategy.rule
        _TRAININGS[type(strategy)].check_model(strategy, model)
        if apart is not None and not strategy.groups_parameters:
            message = (
                f"Task.parameter_groups() trains '{apart}' with factors of its own, and "
                f"{strategy.name} has no rate or weight decay of single parameters; return "
                "nothing with this strategy"
            )
            raise GroupsError(message)
