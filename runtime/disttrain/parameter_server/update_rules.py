"""The update rules, applied in place to one chunk at a time.

Every rule works on each coordinate by itself, so the result does not depend on how the vector is
cut. Fused kernels of torch read each value once. Weight decay is in the gradient: replicas add it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor

from disttrain.job.optimizer import Adagrad, Momentum, Sgd

State = Mapping[str, Tensor]
"""Of a chunk: views of the rule's state vectors, by name."""


class Rule(Protocol):
    """One update rule. Keeps nothing per coordinate: that is in the state vectors."""

    initial_state: Mapping[str, float]
    """The vectors, as long as the parameters, that the rule needs, and what they are filled with at
    first."""

    def apply(self, parameters: Tensor, gradient: Tensor, state: State, rate: float) -> None:
        """Update the parameters in place, not the gradient. All are as long, and of one type."""
        ...


class SgdRule:
    """parameters -= rate * gradient, with the very operation of torch.optim.SGD, hence its bits."""

    initial_state: Mapping[str, float] = MappingProxyType({})

    def apply(self, parameters: Tensor, gradient: Tensor, state: State, rate: float) -> None:
        del state
        parameters.add_(gradient, alpha=-rate)


class MomentumRule:
    """velocity = momentum * velocity + gradient, as torch.optim.SGD without dampening."""

    initial_state: Mapping[str, float] = MappingProxyType({"momentum": 0.0})

    def __init__(self, config: Momentum) -> None:
        self._config = config

    def apply(self, parameters: Tensor, gradient: Tensor, state: State, rate: float) -> None:
        torch._fused_sgd_(
            [parameters],
            [gradient],
            [state["momentum"]],
            weight_decay=0.0,
            momentum=self._config.momentum,
            lr=rate,
            dampening=0.0,
            nesterov=self._config.nesterov,
            maximize=False,
            is_first_step=False,
        )


class AdagradRule:
    """rate / (root of the sum of squared gradients + epsilon), per parameter: DistBelief 4.1."""

    def __init__(self, config: Adagrad) -> None:
        self.initial_state: Mapping[str, float] = {"sum_of_squares": config.initial_accumulator}
        self._config = config
        self._step = torch.zeros(())

    def apply(self, parameters: Tensor, gradient: Tensor, state: State, rate: float) -> None:
        torch._fused_adagrad_(
            [parameters],
            [gradient],
            [state["sum_of_squares"]],
            [self._step],
            lr=rate,
            lr_decay=0.0,
            weight_decay=0.0,
            eps=self._config.epsilon,
            maximize=False,
        )


def rule_for(config: Sgd | Momentum | Adagrad) -> Rule:
    """The rule that a manifest asks for."""
    match config:
        case Sgd():
            return SgdRule()
        case Momentum():
            return MomentumRule(config)
        case Adagrad():
            return AdagradRule(config)
