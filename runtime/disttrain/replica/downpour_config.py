"""How a replica works with the parameter server in Downpour SGD."""

from dataclasses import dataclass

from disttrain.job import defaults
from disttrain.job.spec import Spec
from disttrain.parameter_server import schedule
from disttrain.parameter_server.schedule import Factor


@dataclass(frozen=True, kw_only=True, slots=True)
class DownpourConfig:
    """Read from the manifest by `from_spec`."""

    push_every: int = 1
    fetch_every: int = 1
    waits_for_answers: bool = False
    """maxInFlight is 0: wait for each push's answer and for the fetch that follows."""
    replicas: int = 1
    """Of the job; how long a step may wait depends on it."""
    local_learning_rate: float = 0.0
    """Of the steps between fetches, before the schedule; 0: there are none."""
    factor: Factor = schedule.constant
    """The schedule of every rate."""
    clip_norm: float | None = None
    weight_decay: float = 0.0
    """Times the parameters that a step computes with, is part of its gradient after clipping: in
    local steps, and once for each step of a push, as torch.optim has it."""
    keeps_velocity: bool = False
    """Whether the shards go on moving a parameter in a step without a gradient of it."""


def from_spec(spec: Spec) -> DownpourConfig:
    """What the manifest says."""
    downpour = spec.strategy.only_downpour
    return DownpourConfig(
        push_every=downpour.push_every,
        fetch_every=downpour.fetch_every,
        waits_for_answers=downpour.max_in_flight == 0,
        replicas=spec.replicas.count,
        local_learning_rate=defaults.local_learning_rate(downpour),
        factor=schedule.factor(downpour.optimizer.rule.schedule.rule),
        clip_norm=downpour.optimizer.rule.clip_norm,
        weight_decay=downpour.optimizer.rule.weight_decay,
        keeps_velocity=downpour.optimizer.rule.has_velocity,
    )


def gradient_buffers(spec: Spec) -> int:
    """How many gradients a replica has memory for: those on their way, and what it works on.

    When several steps accrue, a step's gradient has to lie beside their sum. Local steps get one
    buffer more for that; without them the step waits as soon as maxInFlight pushes are unanswered.
    """
    downpour = spec.strategy.only_downpour
    if downpour.push_every == 1:
        return downpour.max_in_flight + 1
    has_local_steps = defaults.local_learning_rate(downpour) > 0
    return max(2, downpour.max_in_flight + (2 if has_local_steps else 1))
