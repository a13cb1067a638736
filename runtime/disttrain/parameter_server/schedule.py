"""The learning rate by samples processed. Pure."""

import math
from bisect import bisect_right
from collections.abc import Callable

from disttrain.job.schedule import Constant, Cosine, LinearWarmup, Steps

Factor = Callable[[int], float]
"""From the samples that a shard has seen in complete pushes to the fraction of the full rate."""


def factor(rule: Constant | LinearWarmup | Steps | Cosine) -> Factor:
    """What the full rate is multiplied by. A push's rate is decided by the samples before it."""
    match rule:
        case Constant():
            return constant
        case LinearWarmup():
            return lambda samples: min(1.0, samples / rule.samples)
        case Steps():
            return lambda samples: _steps(rule, samples)
        case Cosine():
            return lambda samples: _cosine(rule, samples)


def constant(_samples: int) -> float:
    return 1.0


def _steps(rule: Steps, samples: int) -> float:
    return float(rule.factor ** bisect_right(rule.at_samples, samples))


def _cosine(rule: Cosine, samples: int) -> float:
    if samples < rule.warmup_samples:
        return samples / rule.warmup_samples
    done = min(1.0, (samples - rule.warmup_samples) / (rule.samples - rule.warmup_samples))
    wave = (1.0 + math.cos(math.pi * done)) / 2.0
    return rule.final_fraction + (1.0 - rule.final_fraction) * wave
