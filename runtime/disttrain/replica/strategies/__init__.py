"""What a replica does for each strategy, one module each; nobody else asks for them."""

from functools import partial

from torch import nn

from disttrain.job import defaults, subclasses
from disttrain.job.spec import Spec
from disttrain.replica.training import Stages, Training, TrainingInputs

_TRAININGS = {training.of: training for training in subclasses.found(__name__, Training)}


def training(given: TrainingInputs) -> Stages:
    return Stages(
        [
            partial(_TRAININGS[type(stage.strategy.rule)], given._replace(spec=stage))
            for stage in defaults.stages(given.spec)
        ]
    )


def check_model(spec: Spec, model: nn.Module) -> None:
    """Raises ModelError for a model that a strategy of the job cannot train."""
    for stage in defaults.stages(spec):
        _TRAININGS[type(stage.strategy.rule)].check_model(model)
