"""Which training a replica does for each stage of a job: nobody else asks for its strategies."""

from collections.abc import Mapping
from functools import partial

from torch import nn

from disttrain.coordinator.protocol.messages import Joined
from disttrain.job import defaults
from disttrain.job.downpour import Downpour
from disttrain.job.sandblaster import Sandblaster
from disttrain.job.spec import Spec
from disttrain.replica.batch_training import BatchTraining
from disttrain.replica.downpour_training import DownpourTraining
from disttrain.replica.membership import Membership
from disttrain.replica.prepared import Prepared
from disttrain.replica.training import Stages

_TRAININGS: Mapping[type, type[DownpourTraining | BatchTraining]] = {
    Downpour: DownpourTraining,
    Sandblaster: BatchTraining,
}
"""By what the manifest says."""


def training(spec: Spec, prepared: Prepared, membership: Membership, joined: Joined) -> Stages:
    """What a replica of the job does."""
    return Stages(
        [
            partial(_TRAININGS[type(stage.strategy.rule)], stage, prepared, membership, joined)
            for stage in defaults.stages(spec)
        ]
    )


def check_model(spec: Spec, model: nn.Module) -> None:
    """Raises ModelError for a model that a strategy of the job cannot train."""
    for stage in defaults.stages(spec):
        _TRAININGS[type(stage.strategy.rule)].check_model(model)
