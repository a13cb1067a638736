"""The types themselves: frozen, strict, exact about which option was chosen."""

import pytest
from pydantic import ValidationError

from builders import update_rules
from builders.jobs import SMALL, a_job, complaints, edited
from disttrain.job.schedule import Schedule
from disttrain.job.schedule_kinds import Cosine
from disttrain.job.section import Choice
from disttrain.job.stop import Evaluation
from disttrain.job.strategies.downpour import Optimizer
from disttrain.job.update_rules.adagrad import Adagrad
from disttrain.job.update_rules.sgd import Sgd


def test_a_job_cannot_be_changed() -> None:
    job = a_job()
    with pytest.raises(ValidationError, match="frozen"):
        job.spec.batch_size = 3  # type: ignore[misc] # This is what must fail.


def test_the_rule_is_the_option_that_was_given() -> None:
    assert Optimizer(sgd=Sgd(learning_rate=0.1)).rule == Sgd(learning_rate=0.1)
    assert Optimizer(adagrad=Adagrad(learning_rate=0.1)).rule == Adagrad(learning_rate=0.1)
    assert Schedule(cosine=Cosine(samples=5)).rule == Cosine(samples=5)


def test_a_choice_without_an_option_cannot_be_made_in_code_either() -> None:
    with pytest.raises(ValidationError, match=f"must have exactly one of {update_rules.NAMES}"):
        Optimizer()


def test_whole_numbers_become_numbers_where_numbers_are_wanted() -> None:
    job = a_job("spec.checkpoint.everySeconds=5")
    assert isinstance(job.spec.checkpoint.every_seconds, float)


def test_zero_turns_off_what_kubectl_cannot_set_to_null() -> None:
    never = a_job("spec.evaluation.everyEpochs=0", "spec.replicas.callTimeoutSeconds=0").spec
    assert never.evaluation == Evaluation(every_epochs=None)
    assert never.replicas.call_timeout_seconds is None
    (said,) = complaints(
        edited("epochs: 1", "epochs: 1, targetMetric: {name: loss, atMost: 0}"),
        "spec.evaluation.everyEpochs=0",
    )
    assert "needs an evaluation during training" in said
    (said,) = complaints(SMALL, "spec.evaluation.everyEpochs=-1")
    assert "spec.evaluation.everyEpochs: must be at least 0, got -1" in said


def test_an_empty_storage_class_is_no_class_as_in_kubernetes() -> None:
    job = a_job("spec.checkpoint.volume={size: 1Gi, storageClassName: ''}")
    assert job.spec.checkpoint.volume is not None
    assert job.spec.checkpoint.volume.storage_class_name == ""
    (said,) = complaints(SMALL, "spec.checkpoint.volume={size: 1Gi, storageClassName: A}")
    assert (
        "spec.checkpoint.volume.storageClassName: must be the name of a Kubernetes object" in said
    )


def test_a_choice_with_one_option_names_it() -> None:
    class OneWay(Choice[int]):
        """A choice that has no alternatives yet."""

        way: int | None = None
        """The way."""

    assert OneWay(way=0).way == 0
    with pytest.raises(ValidationError, match="must have way, got nothing"):
        OneWay()
