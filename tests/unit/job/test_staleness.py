"""What a manifest may ask for against staleness, and what the shards make of it."""

import pytest

from builders.jobs import a_batch_job, a_job
from disttrain.job import rules
from disttrain.job.finding import InvalidManifest, Severity
from disttrain.job.strategies.downpour import Downpour
from disttrain.job.update_rule import present_name
from disttrain.job.update_rules.compensated import Compensated

MOMENTUM = (
    "{momentum: {learningRate: 0.1, momentum: 0.7, weightDecay: 0.01, clipNorm: 2, "
    "schedule: {linearWarmup: {samples: 9}}}}"
)


def a_downpour(optimizer: str, staleness: str) -> Downpour:
    given = f"{{optimizer: {optimizer}, staleness: {staleness}}}"
    return a_job(f"spec.strategy.downpour={given}").spec.strategy.only_downpour


def test_predict_makes_of_momentum_what_checkpoints_of_before_hold() -> None:
    found = a_downpour(MOMENTUM, "{predict: {}}")
    given, made = found.optimizer.rule, found.shard_rule
    assert (made.name, made.kept) == (found.update_rule, ("velocity",))
    assert found.update_rule == "predicted_momentum"
    shared = set(type(made).model_fields)
    assert {name: getattr(made, name) for name in shared} == {
        name: getattr(given, name) for name in shared
    }
    assert shared == set(type(given).model_fields) - {"nesterov"}
    assert (found.computes_on, found.evaluates) == ("prediction", "parameters")
    assert found.vectors == ("velocity", "prediction")
    assert found.rate_of_local_steps == 0


def test_without_a_remedy_shards_carry_out_the_optimizer() -> None:
    for remedy in ("{}", "{scaleRate: {}}"):
        found = a_downpour(MOMENTUM, remedy)
        assert found.shard_rule is found.optimizer.rule
        assert (found.computes_on, found.vectors) == ("parameters", ("momentum",))


@pytest.mark.parametrize(
    ("optimizer", "staleness", "message"),
    [
        (
            "{sgd: {learningRate: 0.1}}",
            "{predict: {}}",
            "staleness.predict needs optimizer.momentum, whose velocity it goes by, got sgd",
        ),
        (
            "{momentum: {learningRate: 0.1, nesterov: true}}",
            "{predict: {}}",
            "staleness.predict looks ahead as nesterov does, and further where gradients are "
            "older; set optimizer.momentum.nesterov: false",
        ),
        (
            MOMENTUM,
            "{predict: {}, scaleRate: {}}",
            "must have at most one of scaleRate, predict, delayCompensation, "
            "predictAndCompensate, got scaleRate and predict",
        ),
        (
            "{sgd: {learningRate: 0.1}}, pushEvery: 2",
            "{delayCompensation: {}}",
            "staleness.delayCompensation needs pushEvery: 1, since it takes the square of each "
            "step's gradient, got 2",
        ),
        (
            "{sgd: {learningRate: 0.1}}",
            "{predictAndCompensate: {}}",
            "staleness.predictAndCompensate needs optimizer.momentum, whose velocity it goes by, "
            "got sgd",
        ),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_reason(
    optimizer: str, staleness: str, message: str
) -> None:
    with pytest.raises(InvalidManifest, match=r"strategy\.downpour") as refused:
        a_downpour(optimizer, staleness)
    (finding,) = refused.value.findings
    assert finding.message.removesuffix(" (given by --set)") == message


def test_a_warm_start_of_batches_is_held_to_the_same() -> None:
    given = "{samples: 9, batchSize: 3, downpour: {staleness: {predict: {}}}}"
    with pytest.raises(InvalidManifest, match=r"needs optimizer\.momentum.* got adagrad"):
        a_batch_job(f"spec.strategy.sandblaster.warmStart={given}")


def test_what_is_pushed_beside_gradients_has_a_number_and_is_warned_of() -> None:
    adaptive = "{strength: 2, adaptive: {}}"
    found = a_downpour(MOMENTUM, f"{{predictAndCompensate: {adaptive}}}")
    assert found.update_rule == "adaptive_predicted_momentum"
    assert found.vectors == ("velocity", "mean_square", "curvature", "prediction")
    assert found.computes_on == "prediction"

    job = a_job("spec.strategy.downpour.staleness={delayCompensation: {}}")
    assert job.spec.strategy.only_downpour.update_rule == "sgd"
    (warning,) = rules.check(job)
    assert "twice as long" in warning.message


@pytest.mark.parametrize("remedy", ["maximum: {updates: 9}", "delayCompensation: {}"])
def test_what_no_replay_follows_is_not_recorded(remedy: str) -> None:
    with pytest.raises(InvalidManifest, match=r"spec\.record: must be false with .*a replay"):
        a_job("spec.record=true", f"spec.strategy.downpour.staleness={{{remedy}}}")


def test_a_mean_of_squares_forgets() -> None:
    with pytest.raises(InvalidManifest, match="meanSquareDecay must be below 1, got 1"):
        a_downpour(MOMENTUM, "{delayCompensation: {adaptive: {meanSquareDecay: 1}}}")


@pytest.mark.parametrize("name", ["predictedMomentum", "stalenessAwareSgd"])
def test_rules_that_a_strategy_makes_are_no_optimizers(name: str) -> None:
    with pytest.raises(InvalidManifest, match=f"{name}: unknown field"):
        a_downpour(f"{{{name}: {{learningRate: 0.1}}}}", "{}")


@pytest.mark.parametrize("optimizer", ["adagrad", "adamw", "rmsprop", "sgd", "momentum"])
def test_a_scaled_rate_is_warned_of_where_it_hurts(optimizer: str) -> None:
    given = f"{{{optimizer}: {{learningRate: 0.1}}}}"
    job = a_job(f"spec.strategy.downpour={{optimizer: {given}, staleness: {{scaleRate: {{}}}}}}")
    found = [one for one in rules.check(job) if one.path[-1] == "staleness"]
    hurts = optimizer not in {"sgd", "momentum"}
    assert [one.severity for one in found] == [Severity.WARNING] * hurts


def test_checkpoints_of_a_rule_of_before_are_those_of_sgd() -> None:
    assert present_name("staleness_aware_sgd") == "sgd"
    assert present_name("predicted_momentum") == "predicted_momentum"


@pytest.mark.parametrize(
    ("compensation", "strength"),
    [("{}", 0.04), ("{adaptive: {}}", 2.0), ("{strength: 0.5, adaptive: {}}", 0.5)],
)
def test_the_strength_that_is_not_given_is_the_one_to_begin_with(
    compensation: str, strength: float
) -> None:
    remedy = f"{{delayCompensation: {compensation}}}"
    made = a_downpour("{sgd: {learningRate: 0.1}}", remedy).shard_rule
    assert isinstance(made, Compensated)
    assert made.strength == strength


@pytest.mark.parametrize("remedy", ["delayCompensation", "predictAndCompensate"])
def test_rounded_gradients_are_not_compensated(remedy: str) -> None:
    given = f"{{optimizer: {MOMENTUM}, staleness: {{{remedy}: {{}}}}, pushAs: bfloat16}}"
    with pytest.raises(InvalidManifest, match="needs pushAs: float32, since rounded gradients"):
        a_job(f"spec.strategy.downpour={given}")


@pytest.mark.parametrize(
    ("most", "fetch_every", "warns"), [(7, 1, True), (8, 1, False), (79, 10, True), (80, 10, False)]
)
def test_a_maximum_below_what_equal_replicas_cause_is_warned_of(
    most: int, fetch_every: int, *, warns: bool
) -> None:
    given = (
        f"{{optimizer: {MOMENTUM}, fetchEvery: {fetch_every}, "
        f"staleness: {{maximum: {{updates: {most}}}}}}}"
    )
    job = a_job(f"spec.strategy.downpour={given}", "spec.replicas.count=8")
    found = [each for each in rules.check(job) if "in vain" in each.message]
    assert [each.severity for each in found] == ([Severity.WARNING] if warns else [])


WAIT = "staleness: {maximum: {updates: MOST, policy: wait}}"


@pytest.mark.parametrize(("most", "warns"), [(6, True), (7, False)])
def test_waiting_for_more_than_replicas_of_equal_speed_cause_is_enough(
    most: int, *, warns: bool
) -> None:
    given = f"{{maxInFlight: 0, {WAIT.replace('MOST', str(most))}}}"
    job = a_job(f"spec.strategy.downpour={given}", "spec.replicas.count=8")
    found = [each for each in rules.check(job) if "take 7 updates or more" in each.message]
    assert [each.severity for each in found] == ([Severity.WARNING] if warns else [])


@pytest.mark.parametrize(
    ("exchange", "message"),
    [
        ("maxInFlight: 1", r"maximum\.policy: wait needs maxInFlight: 0, .*, got 1; set it to 0"),
        ("maxInFlight: 0, fetchEvery: 2, pushEvery: 2", r"wait needs fetchEvery: 1, .*, got 2"),
    ],
)
def test_who_pushes_several_gradients_of_a_fetch_is_not_waited_for(
    exchange: str, message: str
) -> None:
    with pytest.raises(InvalidManifest, match=message):
        a_job(f"spec.strategy.downpour={{{exchange}, {WAIT.replace('MOST', '9')}}}")


@pytest.mark.parametrize(
    ("former", "now"),
    [("stalenessAwareSgd", "scaleRate: {}"), ("predictedMomentum", "predict: {}")],
)
def test_what_a_former_rule_is_called_now_is_said(former: str, now: str) -> None:
    with pytest.raises(InvalidManifest, match=f"unknown field; it is now .*{now}"):
        a_job(f"spec.strategy.downpour={{optimizer: {{{former}: {{learningRate: 0.1}}}}}}")
