"""Rules on jobs that are already made, as a command asks for warnings before a run."""

import re

import pytest

from builders.jobs import a_job
from disttrain.job import rules
from disttrain.job.finding import Severity
from disttrain.job.spec import Audit, Strategy
from disttrain.job.strategies.downpour import Downpour


def test_a_plain_job_breaks_no_rule() -> None:
    assert rules.check(a_job()) == []


def test_a_good_job_has_warnings_only() -> None:
    job = a_job("spec.stop={targetMetric: {name: loss, atMost: 0.1}}")
    (finding,) = rules.check(job)
    assert finding.severity is Severity.WARNING
    assert finding.path == ("spec", "stop", "targetMetric")


def test_a_job_that_was_made_in_code_is_held_to_the_same_rules() -> None:
    job = a_job()
    spec = job.spec.model_copy(update={"portion_size": 33})
    (finding,) = rules.check(job.model_copy(update={"spec": spec}))
    assert str(finding) == "spec.portionSize: must be a multiple of batchSize (32), got 33"


def test_the_chosen_strategy_is_the_only_one_there_is() -> None:
    downpour = a_job().spec.strategy.rule
    assert isinstance(downpour, Downpour)
    assert Strategy(downpour=downpour).rule is downpour


@pytest.mark.parametrize(
    ("optimizer", "push_every", "said"),
    [
        ("adagrad", 4, "makes Adagrad square the sum of 4 gradients, .* take about 2 times"),
        ("momentum", 16, "velocity of 16 gradients, .* keep the learningRate"),
        ("adagrad", 1, None),
        ("momentum", 1, None),
        ("sgd", 16, None),
    ],
)
def test_pushes_of_several_steps_are_warned_of_where_they_change_what_a_rate_means(
    optimizer: str, push_every: int, said: str | None
) -> None:
    job = a_job(
        f"spec.strategy.downpour.optimizer={{{optimizer}: {{learningRate: 0.1}}}}",
        f"spec.strategy.downpour.pushEvery={push_every}",
    )

    found = rules.check(job)

    assert [finding.severity for finding in found] == [Severity.WARNING] * (said is not None)
    assert said is None or re.search(said, found[0].message)


ADAGRAD = "spec.strategy.downpour.optimizer.adagrad"


@pytest.mark.parametrize(
    ("assignments", "is_warned"),
    [
        ((), True),
        (("spec.replicas.count=1",), False),
        ((f"{ADAGRAD}.initialAccumulator=0.1",), False),
        ((f"{ADAGRAD}.schedule={{linearWarmup: {{samples: 1024}}}}",), False),
        (("spec.strategy.downpour.warmStart={samples: 2000}",), False),
        (("spec.strategy={downpour: {}}",), False),
        (("spec.strategy.downpour.optimizer={sgd: {learningRate: 0.1}}",), False),
        (("spec.strategy.downpour.optimizer={adamw: {learningRate: 0.1}}",), True),
        (("spec.strategy.downpour.optimizer={rmsprop: {learningRate: 0.1}}",), True),
        (
            (
                "spec.strategy.downpour.optimizer={adam: {learningRate: 0.1}}",
                "spec.strategy.downpour.optimizer.adam.schedule={linearWarmup: {samples: 1024}}",
            ),
            False,
        ),
    ],
)
def test_a_rule_that_begins_with_full_steps_of_several_replicas_is_warned_of(
    assignments: tuple[str, ...], *, is_warned: bool
) -> None:
    rule = "spec.strategy.downpour.optimizer={adagrad: {learningRate: 0.05}}"
    found = rules.check(a_job(rule, "spec.replicas.count=3", *assignments))
    said = [str(finding) for finding in found if finding.severity is Severity.WARNING]
    assert len(said) == len(found) == is_warned
    assert not said or "the first steps of 3 replicas" in said[0]


@pytest.mark.parametrize(
    "condition", ["targetMetric: {name: a, atLeast: 1}", "patience: {evaluations: 3}"]
)
def test_what_goes_by_evaluations_needs_some_during_training(condition: str) -> None:
    job = a_job(f"spec.stop={{epochs: 3, {condition}}}")
    spec = job.spec.model_copy(update={"evaluation": None})
    (finding,) = rules.check(job.model_copy(update={"spec": spec}))
    assert str(finding) == (
        f"spec.stop.{condition.partition(':')[0]}: needs an evaluation during training: "
        "set spec.evaluation.everyEpochs or everySeconds"
    )


def test_the_best_of_one_model_is_worth_a_warning() -> None:
    (finding,) = rules.check(a_job("spec.evaluation={everyEpochs: 0, keepBest: {}}"))
    assert finding.severity is Severity.WARNING
    assert str(finding) == (
        "spec.evaluation.keepBest: keeps a second copy of the exported model, since no other one "
        "is evaluated; set spec.evaluation.everyEpochs or everySeconds"
    )
    for often in ("everyEpochs: 2", "everyEpochs: 0, everySeconds: 5"):
        assert not rules.check(a_job(f"spec.evaluation={{{often}, keepBest: {{}}}}"))


@pytest.mark.parametrize("audit", ["summary", "off"])
def test_a_record_for_a_replay_keeps_everything(audit: str) -> None:
    spec = a_job("spec.record=true").spec.model_copy(update={"audit": Audit(audit)})
    (finding,) = rules.check(a_job().model_copy(update={"spec": spec}))
    assert str(finding) == (
        f"spec.audit: must be full, or left out, with record: true, got {audit}: "
        "a replay needs every record; or set record: false"
    )
