"""The method that a manifest describes, as the pure core of Sandblaster takes it. Pure."""

from functools import lru_cache

from disttrain.job import batch_optimizer
from disttrain.job.batch_optimizer import BatchRule, GradientDescent
from disttrain.job.sandblaster import Precision, Sandblaster
from disttrain.sandblaster.batch.driver import Driver, DriverRules
from disttrain.sandblaster.batch.groups import BackupRules
from disttrain.sandblaster.conjugate_gradient import ConjugateGradient
from disttrain.sandblaster.descent import Descent, DescentRules
from disttrain.sandblaster.directions import Directions, SteepestDescent
from disttrain.sandblaster.lbfgs import Lbfgs
from disttrain.sandblaster.line_search.armijo import ArmijoRules
from disttrain.sandblaster.line_search.search import SearchRules
from disttrain.sandblaster.line_search.strong_wolfe import WolfeRules

_ROUNDING_FLOAT32, _TOLERANCE_FLOAT32 = 2.0**-22, 1e-3
"""Of inner products of vectors in single precision: with less care nothing is exact enough, with
more every iteration would compute all of them again."""
_FLAT_FOR_CONJUGATE = 0.1
"""Conjugate directions lose their worth behind a coarse search (Nocedal and Wright, 5.2)."""


@lru_cache(maxsize=8)
def driver(rules: Sandblaster, groups: int) -> Driver:
    """What decides the course of a job whose batch has so many groups."""
    method = rules.optimizer.rule
    descent = DescentRules(
        search=_search(method),
        gradient_tolerance=method.gradient_tolerance,
        change_tolerance=method.change_tolerance,
    )
    backup = BackupRules(
        enabled=rules.backup_tasks.enabled,
        start_when_remaining=rules.backup_tasks.start_when_remaining,
    )
    directions = _directions(method, rules.precision)
    return Driver(Descent(descent, directions), DriverRules(groups=groups, backup=backup))


def _search(method: BatchRule) -> SearchRules:
    if isinstance(method.line_search.rule, batch_optimizer.Armijo):
        return ArmijoRules()
    if isinstance(method, batch_optimizer.ConjugateGradient):
        return WolfeRules(curvature=_FLAT_FOR_CONJUGATE)
    return WolfeRules()


def _directions(
    method: batch_optimizer.Lbfgs | batch_optimizer.ConjugateGradient | GradientDescent,
    precision: Precision,
) -> Directions:
    match method:
        case batch_optimizer.Lbfgs() if precision is Precision.FLOAT32:
            return Lbfgs(
                history=method.history, rounding=_ROUNDING_FLOAT32, tolerance=_TOLERANCE_FLOAT32
            )
        case batch_optimizer.Lbfgs():
            return Lbfgs(history=method.history)
        case batch_optimizer.ConjugateGradient():
            return ConjugateGradient()
        case GradientDescent():
            return SteepestDescent()
