"""The method that a manifest describes is the one that runs."""

import pytest

from builders.batch_machines import RULES, BatchMachine
from disttrain.coordinator.journal import batch_rules
from disttrain.coordinator.phases import Phase
from disttrain.job.strategies.sandblaster import (
    Armijo,
    BatchOptimizer,
    ConjugateGradient,
    GradientDescent,
    Lbfgs,
    LineSearch,
)
from disttrain.job.strategy_kind import Precision
from disttrain.sandblaster.line_search import WolfeRules

ARMIJO = LineSearch(armijo=Armijo())


@pytest.mark.parametrize(
    ("optimizer", "kind"),
    [
        (BatchOptimizer(lbfgs=Lbfgs()), "strong_wolfe"),
        (BatchOptimizer(lbfgs=Lbfgs(line_search=ARMIJO)), "armijo"),
        (BatchOptimizer(conjugate_gradient=ConjugateGradient()), "strong_wolfe"),
        (BatchOptimizer(gradient_descent=GradientDescent(line_search=ARMIJO)), "armijo"),
    ],
)
@pytest.mark.parametrize("precision", list(Precision))
def test_every_method_and_line_search_converges(
    optimizer: BatchOptimizer, kind: str, precision: Precision
) -> None:
    rules = RULES.model_copy(update={"optimizer": optimizer, "precision": precision})
    machine = BatchMachine(rules=rules)
    _, first, second = machine.running()
    for _ in range(30):
        machine.evaluate(first, second)

    assert machine.phase() is Phase.COMPLETE
    assert machine.state.reason == "Converged"
    search = machine.batch.course.method.search
    assert search is not None
    assert search.kind == kind


@pytest.mark.parametrize(("samples", "groups"), [(48, 3), (49, 4), (64, 4)])
def test_a_batch_is_rounded_up_to_whole_groups(samples: int, groups: int) -> None:
    rules = RULES.model_copy(update={"batch_size": samples})
    assert rules.groups_of_a_batch == groups
    assert RULES.groups_of_a_batch is None


def test_a_line_search_sees_as_little_as_the_precision_allows() -> None:
    found = {}
    for precision in Precision:
        rules = batch_rules.search(RULES.model_copy(update={"precision": precision}))
        assert isinstance(rules, WolfeRules)
        found[precision] = rules.resolution
    assert 0 < found[Precision.FLOAT64] < found[Precision.FLOAT32] < 1e-5
