"""Which training a replica does for each phase of a job: nobody else asks for its strategies."""

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
from disttrain.replica.phases import Phases
from disttrain.replica.prepared import Prepared

_TRAININGS: Mapping[type, type[DownpourTraining | BatchTraining]] = {
    Downpour: DownpourTraining,
    Sandblaster: BatchTraining,
}
"""By what the manifest says."""


def training(spec: Spec, prepared: Prepared, membership: Membership, joined: Joined) -> Phases:
    """What a replica of the job does."""
    return Phases(
        [
            partial(_TRAININGS[type(phase.strategy.rule)], phase, prepared, membership, joined)
            for phase in _phases(spec)
        ]
    )


def check_model(spec: Spec, model: nn.Module) -> None:
    """Raises ModelError for a model that a strategy of the job cannot train."""
    for phase in _phases(spec):
        _TRAININGS[type(phase.strategy.rule)].check_model(model)


def _phases(spec: Spec) -> list[Spec]:
    first = defaults.first_stage(spec)
    return [spec] if first is spec else [first, spec]
