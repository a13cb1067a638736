"""The optimizers of torch.optim that replicas can step with, and the arguments of each. Pure.

Without torch, so that a manifest is checked where there is none; a test compares it with torch.
Left out is what wants a closure or sparse gradients. So are arguments that maximize, or are for
CUDA graphs and derivatives of steps.
"""

from collections.abc import Mapping
from enum import StrEnum


class OptimizerName(StrEnum):
    """A class of torch.optim."""

    ADAM_W = "AdamW"
    """Adam with decoupled weight decay."""
    ADAM = "Adam"
    """A running mean of gradients over the root of that of their squares."""
    ADADELTA = "Adadelta"
    """Steps that adapt without a rate."""
    ADAFACTOR = "Adafactor"
    """Adam with factored second moments: little memory for matrices."""
    ADAGRAD = "Adagrad"
    """The rate over the root of summed squares."""
    ADAMAX = "Adamax"
    """Adam with the largest of the latest gradients."""
    ASGD = "ASGD"
    """SGD that averages its iterates."""
    MUON = "Muon"
    """Orthogonal momentum, of models whose parameters are all matrices."""
    NADAM = "NAdam"
    """Adam with Nesterov's momentum."""
    RADAM = "RAdam"
    """Adam whose first steps are corrected for their variance."""
    RMSPROP = "RMSprop"
    """The rate over the root of a running mean of squares."""
    RPROP = "Rprop"
    """By the signs of gradients, of whole batches."""
    SGD = "SGD"
    """Stochastic gradient descent, with momentum on request."""


_DECAY = ("lr", "eps", "weight_decay", "foreach")
_ADAM = (*_DECAY, "betas")

ARGUMENTS: Mapping[OptimizerName, tuple[str, ...]] = {
    OptimizerName.ADAM_W: (*_ADAM, "amsgrad", "fused"),
    OptimizerName.ADAM: (*_ADAM, "amsgrad", "fused", "decoupled_weight_decay"),
    OptimizerName.ADADELTA: (*_DECAY, "rho"),
    OptimizerName.ADAFACTOR: (*_DECAY, "beta2_decay", "d"),
    OptimizerName.ADAGRAD: (*_DECAY, "lr_decay", "initial_accumulator_value", "fused"),
    OptimizerName.ADAMAX: _ADAM,
    OptimizerName.ASGD: ("lr", "lambd", "alpha", "t0", "weight_decay", "foreach"),
    OptimizerName.MUON: (
        "lr",
        "weight_decay",
        "momentum",
        "nesterov",
        "ns_coefficients",
        "eps",
        "ns_steps",
        "adjust_lr_fn",
    ),
    OptimizerName.NADAM: (*_ADAM, "momentum_decay", "decoupled_weight_decay"),
    OptimizerName.RADAM: (*_ADAM, "decoupled_weight_decay"),
    OptimizerName.RMSPROP: (*_DECAY, "alpha", "momentum", "centered"),
    OptimizerName.RPROP: ("lr", "etas", "step_sizes", "foreach"),
    OptimizerName.SGD: (
        "lr",
        "momentum",
        "dampening",
        "weight_decay",
        "nesterov",
        "foreach",
        "fused",
    ),
}
"""Their names are torch's own."""
