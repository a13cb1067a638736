"""The update rules that a shard applies to pushed gradients."""

from typing import Annotated, ClassVar

from pydantic import Field

from disttrain.job.schedule import Constant, Schedule
from disttrain.job.section import Choice, NotNegative, Positive, Section


class UpdateRule(Section):
    """What all update rules take."""

    kept: ClassVar[tuple[str, ...]] = ()
    # What a holder keeps beside the parameters: the vectors' names.

    learning_rate: Positive = Field(examples=[0.05])
    """The full learning rate, before the schedule."""

    weight_decay: NotNegative = 0.0
    """L2 penalty: this times the parameter is added to its gradient in every step, and nothing if
    there is none, as torch.optim does."""

    clip_norm: Positive | None = None
    """Largest L2 norm of one step's gradient; a longer one is scaled down to it. null: no limit."""

    schedule: Schedule = Schedule(constant=Constant())
    """How the rate changes with the samples processed."""


class Sgd(UpdateRule):
    """Plain stochastic gradient descent."""


class Momentum(UpdateRule):
    """Gradient descent with a velocity that is kept on the shard.

    A step without a gradient of a parameter that had one before ends the job: torch.optim would
    leave that parameter alone, the velocity moves it.
    """

    kept = ("momentum",)

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Fraction of the velocity that is kept per update."""

    nesterov: bool = False
    """Look ahead along the velocity, as torch.optim.SGD does with `nesterov=True`."""


class Adagrad(UpdateRule):
    """DistBelief's Adagrad: rate divided by the root of the sum of squared gradients."""

    kept = ("sum_of_squares",)

    initial_accumulator: NotNegative = 0.0
    """Sum of squared gradients that every parameter begins with. With 0, as in DistBelief, the
    first step moves every parameter by the whole learning rate; 0.1 begins gently."""

    epsilon: Positive = 1e-10
    """Added to the root, so that a gradient that was always zero gives no NaN."""


class Optimizer(Choice):
    """Exactly one update rule, applied on the shards."""

    sgd: Sgd | None = None
    """Plain stochastic gradient descent."""

    momentum: Momentum | None = None
    """Gradient descent with momentum."""

    adagrad: Adagrad | None = None
    """Adagrad; DistBelief's choice for Downpour."""

    @property
    def rule(self) -> Sgd | Momentum | Adagrad:
        options: list[Sgd | Momentum | Adagrad | None]
        options = [self.sgd, self.momentum, self.adagrad]
        return next(option for option in options if option is not None)
