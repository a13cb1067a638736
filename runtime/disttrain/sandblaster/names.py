"""What the vectors on the shards are called."""

import re

from disttrain.state import vector

PARAMETERS = vector.PARAMETERS
"""The point that was accepted last."""
GRADIENT = "gradient"
"""The gradient there."""
DIRECTION = "direction"
"""Where the line search goes from there."""
TRIAL = "trial"
"""The point whose loss and gradient are wanted."""
ARRIVED = "arrived"
"""The gradient at the trial point, once all portions are in."""
FETCHABLE = (TRIAL, GRADIENT, DIRECTION, ARRIVED)
"""What the placement names beside the parameters."""

BEFORE, MIDDLE, AFTER = "before", "middle", "after"
"""Gradients at the trial point over three runs of a batch that is smaller than the data: what it
shares with the batch before, what only it has, and what it shares with the next one."""
KEPT = "kept"
"""What `AFTER` was at the point that was accepted last."""


_OF_PAIR = re.compile(r"[sy][0-9]+")


def pair(slot: int) -> tuple[str, str]:
    """A pair of L-BFGS: how far an iteration went (s), how its gradient changed on the way (y)."""
    return f"s{slot}", f"y{slot}"


def is_of_pair(name: str) -> bool:
    """Whether a vector is of a pair, which stays as it is for as many iterations as there are."""
    return _OF_PAIR.fullmatch(name) is not None
