"""The method that a manifest describes, as the pure core of Sandblaster takes it. Pure."""

from functools import lru_cache

from disttrain.job.strategies import sandblaster
from disttrain.job.strategies.sandblaster import Sandblaster
from disttrain.job.strategy_kind import Precision
from disttrain.sandblaster.batch.batches import Batches
from disttrain.sandblaster.batch.driver import Driver, DriverRules
from disttrain.sandblaster.batch.groups import BackupRules
from disttrain.sandblaster.descent import Descent, DescentRules
from disttrain.sandblaster.directions import ConjugateGradient, SteepestDescent
from disttrain.sandblaster.lbfgs import Lbfgs, WeakPairs
from disttrain.sandblaster.line_search import ArmijoRules, SearchRules, WolfeRules
from disttrain.sandblaster.multi_batch import MultiBatch
from disttrain.sandblaster.scheme import IterationScheme

_ROUNDING_FLOAT32, _TOLERANCE_FLOAT32 = 2.0**-22, 1e-3
"""Of inner products of vectors in single precision: with less care nothing is exact enough, with
more every iteration would compute all of them again."""
_RESOLUTIONS = {Precision.FLOAT32: 2.0**-22, Precision.FLOAT64: 2.0**-50}
"""Of a loss: a few roundings of its terms."""
_SHARED = 0.2
"""Fraction of a small batch that the next one has, too."""


@lru_cache(maxsize=8)
def driver(rules: Sandblaster, groups: int, seed: int) -> Driver:
    """What decides the run of a method whose data has so many groups.

    Raises ValueError if batches of the size that is asked for cannot be made of them.
    """
    backup = BackupRules(
        enabled=rules.backup_tasks.enabled,
        start_when_remaining=rules.backup_tasks.start_when_remaining,
    )
    batches = None
    size = rules.groups_of_a_batch
    if size is not None:
        overlap = max(1, round(_SHARED * size))
        batches = Batches(seed=seed, groups=groups, size=size, overlap=overlap)
    return Driver(_scheme(rules), DriverRules(groups=groups, backup=backup, batches=batches))


def _scheme(rules: Sandblaster) -> IterationScheme:
    method = rules.optimizer.rule
    descent = DescentRules(
        search=search(rules),
        gradient_tolerance=method.gradient_tolerance,
        change_tolerance=method.change_tolerance,
    )
    match method:
        case sandblaster.Lbfgs() if rules.groups_of_a_batch is not None:
            return MultiBatch(descent, _lbfgs(method, rules.precision, WeakPairs.DAMP))
        case sandblaster.Lbfgs():
            return Descent(descent, _lbfgs(method, rules.precision, WeakPairs.SKIP))
        case sandblaster.ConjugateGradient():
            return Descent(descent, ConjugateGradient())
        case sandblaster.GradientDescent():
            return Descent(descent, SteepestDescent())


def search(rules: Sandblaster) -> SearchRules:
    """How long the steps are; the manifest need not say it."""
    chosen = rules.optimizer.rule.line_search
    is_armijo = rules.groups_of_a_batch is not None
    if chosen is not None:
        is_armijo = isinstance(chosen.rule, sandblaster.Armijo)
    return ArmijoRules() if is_armijo else WolfeRules(resolution=_RESOLUTIONS[rules.precision])


def _lbfgs(method: sandblaster.Lbfgs, precision: Precision, weak_pairs: WeakPairs) -> Lbfgs:
    if precision is Precision.FLOAT64:
        return Lbfgs(history=method.history, weak_pairs=weak_pairs)
    return Lbfgs(
        history=method.history,
        rounding=_ROUNDING_FLOAT32,
        tolerance=_TOLERANCE_FLOAT32,
        weak_pairs=weak_pairs,
    )
