"""The methods that minimise the loss over a whole batch (DistBelief 4.2)."""

from typing import Annotated, ClassVar

from pydantic import Field

from disttrain.job.section import Choice, NotNegative, Section


class StrongWolfe(Section):
    """Steps along which the loss falls and its slope becomes flat (1e-4 and 0.9)."""


class Armijo(Section):
    """Steps along which the loss falls; the first that does is taken."""


class LineSearch(Choice[StrongWolfe | Armijo]):
    """Exactly one rule for the length of a step."""

    strong_wolfe: StrongWolfe | None = None
    """By loss and slope, with cubic interpolation."""

    armijo: Armijo | None = None
    """By the loss alone: for losses that are noisy."""


class BatchRule(Section):
    """What all methods take."""

    name: ClassVar[str]
    # In checkpoints: it stays, whatever the class is called.

    gradient_tolerance: NotNegative = 1e-5
    """The method has converged when no element of the gradient is larger than this."""

    change_tolerance: NotNegative = 1e-9
    """The method has converged when three iterations in a row (five, if a batch is a part of the
    data) each change the loss by no more than this times the loss, or times 1 if that is more."""

    line_search: LineSearch | None = None
    """How long the steps are. null: strongWolfe if the batch is all data, else armijo."""


class Lbfgs(BatchRule):
    """Limited-memory BFGS: curvature from the last few steps, which the shards keep."""

    name = "lbfgs"

    history: Annotated[int, Field(ge=1, le=100)] = 10
    """Steps that are remembered; each takes two vectors of the parameters' length."""


class ConjugateGradient(BatchRule):
    """Nonlinear conjugate gradients, Polak and Ribiere's."""

    name = "conjugategradient"


class GradientDescent(BatchRule):
    """Against the gradient, with a line search."""

    name = "gradientdescent"


class BatchOptimizer(Choice[Lbfgs | ConjugateGradient | GradientDescent]):
    """Exactly one method."""

    lbfgs: Lbfgs | None = None
    """L-BFGS; DistBelief's choice for Sandblaster."""

    conjugate_gradient: ConjugateGradient | None = None
    """Nonlinear conjugate gradients."""

    gradient_descent: GradientDescent | None = None
    """Gradient descent with a line search."""
