"""Downpour as a manifest describes it, with a rate that stays the same."""

from disttrain.job.downpour import Downpour
from disttrain.job.optimizer import Optimizer
from disttrain.job.update_rules.momentum import Momentum
from disttrain.job.update_rules.sgd import Sgd


def a_downpour(
    *,
    push_every: int = 1,
    fetch_every: int = 1,
    waits_for_answers: bool = False,
    local_learning_rate: float = 0.0,
    clip_norm: float | None = None,
    weight_decay: float = 0.0,
    keeps_velocity: bool = False,
) -> Downpour:
    """The rate of the shards' own rule is that of the shards in the test."""
    kept = {"learning_rate": 0.1, "clip_norm": clip_norm, "weight_decay": weight_decay}
    optimizer = (
        Optimizer(momentum=Momentum.model_validate(kept))
        if keeps_velocity
        else Optimizer(sgd=Sgd.model_validate(kept))
    )
    return Downpour(
        push_every=push_every,
        fetch_every=fetch_every,
        max_in_flight=0 if waits_for_answers else 1,
        local_learning_rate=local_learning_rate,
        optimizer=optimizer,
    )
