"""Rules on jobs that are already made, as a command asks for warnings before a run."""

from builders.jobs import a_job
from disttrain.job import rules
from disttrain.job.downpour import Downpour
from disttrain.job.finding import Severity
from disttrain.job.strategy import Strategy


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
