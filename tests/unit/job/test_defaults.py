"""Values that follow from others when the manifest leaves them open."""

import pytest

from builders.jobs import a_job
from disttrain.job import defaults

OPTIMIZER = "spec.strategy.downpour.optimizer"


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        ((), 0.1),
        ((f"{OPTIMIZER}.sgd=null", f"{OPTIMIZER}.momentum.learningRate=0.2"), 0.2),
        ((f"{OPTIMIZER}.sgd=null", f"{OPTIMIZER}.adagrad.learningRate=0.2"), 0.0),
        (("spec.strategy.downpour.localLearningRate=0.3",), 0.3),
        (("spec.strategy.downpour.localLearningRate=0",), 0.0),
    ],
)
def test_local_learning_rate(assignments: tuple[str, ...], expected: float) -> None:
    downpour = a_job(*assignments).spec.strategy.only_downpour
    assert defaults.local_learning_rate(downpour) == expected


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        ((), 128),
        (("spec.evaluation=null",), 128),
        (("spec.evaluation.batchSize=50",), 50),
    ],
)
def test_evaluation_batch_size(assignments: tuple[str, ...], expected: int) -> None:
    assert defaults.evaluation_batch_size(a_job(*assignments).spec) == expected


def test_without_a_warm_start_it_takes_no_samples() -> None:
    assert defaults.warm_start_samples(a_job().spec.strategy.only_downpour) == 0


def test_warm_start_samples_are_those_of_the_manifest() -> None:
    job = a_job("spec.strategy.downpour.warmStart.samples=500")
    assert defaults.warm_start_samples(job.spec.strategy.only_downpour) == 500


@pytest.mark.parametrize(
    ("push_every", "fetch_every", "in_flight", "expected"),
    [(1, 1, 1, 20), (1, 1, 0, 10), (1, 10, 1, 110), (5, 10, 2, 40), (10, 1, 1, 20)],
)
def test_a_staleness_bound_allows_what_the_strategy_causes(
    push_every: int, fetch_every: int, in_flight: int, expected: int
) -> None:
    downpour = a_job(
        f"spec.strategy.downpour.pushEvery={push_every}",
        f"spec.strategy.downpour.fetchEvery={fetch_every}",
        f"spec.strategy.downpour.maxInFlight={in_flight}",
    ).spec.strategy.only_downpour
    assert defaults.staleness_bound(downpour) == expected
