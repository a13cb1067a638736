"""The methods that minimise the loss over a whole batch (DistBelief 4.2)."""

from typing import Annotated

from pydantic import Field

from disttrain.job.section import Choice, NotNegative, Section


class StrongWolfe(Section):
    """Steps along which the loss falls and its slope becomes flat (1e-4 and 0.9)."""


class Armijo(Section):
    """Steps along which the loss falls; the first that does is taken."""


class LineSearch(Choice):
    """Exactly one rule for the length of a step."""

    strong_wolfe: StrongWolfe | None = None
    """By loss and slope, with cubic interpolation."""

    armijo: Armijo | None = None
    """By the loss alone: for losses that are noisy."""

    @property
    def rule(self) -> StrongWolfe | Armijo:
        options: list[StrongWolfe | Armijo | None] = [self.strong_wolfe, self.armijo]
        return next(option for option in options if option is not None)


class BatchRule(Section):
    """What all methods take."""

    gradient_tolerance: NotNegative = 1e-5
    """The method has converged when no element of the gradient is larger than this."""

    change_tolerance: NotNegative = 1e-9
    """The method has converged when three iterations in a row (five, if a batch is a part of the
    data) each change the loss by no more than this times the loss, or times 1 if that is more."""

    line_search: LineSearch | None = None
    """How long the steps are. null: strongWolfe if the batch is all data, else armijo."""


class Lbfgs(BatchRule):
    """Limited-memory BFGS: curvature from the last few steps, which the shards keep."""

    history: Annotated[int, Field(ge=1, le=100)] = 10
    """Steps that are remembered; each takes two vectors of the parameters' length."""


class ConjugateGradient(BatchRule):
    """Nonlinear conjugate gradients, Polak and Ribiere's."""


class GradientDescent(BatchRule):
    """Against the gradient, with a line search."""


class BatchOptimizer(Choice):
    """Exactly one method."""

    lbfgs: Lbfgs | None = None
    """L-BFGS; DistBelief's choice for Sandblaster."""

    conjugate_gradient: ConjugateGradient | None = None
    """Nonlinear conjugate gradients."""

    gradient_descent: GradientDescent | None = None
    """Gradient descent with a line search."""

    @property
    def rule(self) -> Lbfgs | ConjugateGradient | GradientDescent:
        options: list[Lbfgs | ConjugateGradient | GradientDescent | None]
        options = [self.lbfgs, self.conjugate_gradient, self.gradient_descent]
        return next(option for option in options if option is not None)
