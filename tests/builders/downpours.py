"""Downpour as a manifest describes it, with a rate that stays the same."""

from typing import Any

from disttrain.job.strategies.downpour import Downpour


def a_downpour(
    *,
    waits_for_answers: bool = False,
    clip_norm: float | None = None,
    weight_decay: float = 0.0,
    **settings: Any,
) -> Downpour:
    """The rate of the shards' own rule is that of the shards in the test."""
    rule = {"learning_rate": 0.1, "clip_norm": clip_norm, "weight_decay": weight_decay}
    given = {
        "max_in_flight": 0 if waits_for_answers else 1,
        "local_learning_rate": 0.0,
        "optimizer": {"sgd": rule},
    }
    return Downpour.model_validate(given | settings)
