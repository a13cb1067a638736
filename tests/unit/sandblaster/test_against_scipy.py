"""The minima are those that SciPy finds, for about as many evaluations."""

from scipy.optimize import minimize

from builders.batch_problems import PROBLEMS, RULES, fused, iterates, shards_of
from disttrain.sandblaster.descent import DescentRules


def test_scipy_finds_no_lower_loss_and_needs_hardly_fewer_evaluations() -> None:
    ours, theirs = 0, 0
    for problem in PROBLEMS.values():
        options = {"maxcor": 10, "ftol": 1e-11, "gtol": 0.0, "maxfun": 10_000, "maxiter": 10_000}
        found = minimize(
            problem.evaluate, problem.start, jac=True, method="L-BFGS-B", options=options
        )
        method = fused(DescentRules(search=RULES.search, change_tolerance=1e-11))
        iterates(method, shards_of(problem, 2))
        ours, theirs = ours + method.progress.evaluations, theirs + found.nfev
        assert abs(method.progress.loss - found.fun) <= 1e-6 * max(1.0, abs(found.fun)), (
            problem.name
        )

    assert ours <= 1.2 * theirs
