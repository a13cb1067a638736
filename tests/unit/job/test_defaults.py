"""Values that follow from others when the manifest leaves them open."""

import pytest

from builders.jobs import a_job
from disttrain.job import defaults
from disttrain.job.schedule_kinds import LinearWarmup
from disttrain.job.spec import Audit
from disttrain.job.update_rules.adagrad import Adagrad

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
    assert downpour.rate_of_local_steps == expected


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


@pytest.mark.parametrize(
    ("member_timeout_seconds", "uri", "expected"),
    [
        (60, "checkpoints/", 60.0),
        (40, "checkpoints/", 40.0),
        (4, "checkpoints/", 30.0),
        (60, "s3://bucket/prefix", 120.0),
        (600, "s3://bucket/prefix", 600.0),
    ],
)
def test_a_coordinator_hangs_after_longer_than_a_disk_or_a_store_may_keep_it(
    member_timeout_seconds: int, uri: str, expected: float
) -> None:
    timeouts = f"{{leaseSeconds: 3, memberTimeoutSeconds: {member_timeout_seconds}}}"
    spec = a_job(f"spec.coordinator={timeouts}", f"spec.checkpoint.uri={uri}").spec
    assert defaults.coordinator_patience_seconds(spec) == expected


def test_without_a_warm_start_it_takes_no_samples() -> None:
    assert a_job().spec.strategy.only_downpour.warm_start_samples == 0


def test_warm_start_samples_are_those_of_the_manifest() -> None:
    job = a_job("spec.strategy.downpour.warmStart.samples=500")
    assert job.spec.strategy.only_downpour.warm_start_samples == 500


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
    assert downpour.staleness_bound == expected


def test_a_strategy_without_an_optimizer_begins_gently_with_adagrad() -> None:
    downpour = a_job("spec.strategy={downpour: {}}").spec.strategy.only_downpour

    rule = downpour.optimizer.rule
    assert isinstance(rule, Adagrad)
    assert (rule.learning_rate, rule.initial_accumulator) == (0.03, 0.1)
    assert rule.schedule.rule == LinearWarmup(samples=1024)


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        ((), Audit.SUMMARY),
        (("spec.record=true",), Audit.FULL),
        (("spec.audit=off",), Audit.OFF),
        (("spec.audit=full",), Audit.FULL),
    ],
)
def test_ledgers_are_bounded_unless_a_replay_is_to_read_them(
    assignments: tuple[str, ...], expected: Audit
) -> None:
    assert defaults.audit(a_job(*assignments).spec) is expected
