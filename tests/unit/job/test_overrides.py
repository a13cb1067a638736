"""Assignments on the command line: what they change, and what is said when they cannot."""

import pytest

from builders.jobs import SMALL, a_job
from disttrain.job.finding import InvalidManifest
from disttrain.job.parsing import parse_job

STEPS = SMALL.replace(
    "learningRate: 0.1", "learningRate: 0.1, schedule: {steps: {atSamples: [10, 20]}}"
)
AT_SAMPLES = "spec.strategy.downpour.optimizer.sgd.schedule.steps.atSamples"


def test_a_missing_section_is_made() -> None:
    assert a_job("spec.replicas.count=4").spec.replicas.count == 4


def test_the_last_assignment_wins() -> None:
    assert a_job("spec.seed=1", "spec.seed=2").spec.seed == 2


def test_null_takes_away() -> None:
    optimizer = "spec.strategy.downpour.optimizer"
    job = a_job(f"{optimizer}.sgd=null", f"{optimizer}.adagrad.learningRate=1e-2")
    assert job.spec.strategy.only_downpour.optimizer.adagrad is not None
    assert job.spec.strategy.only_downpour.optimizer.rule.learning_rate == 0.01


def test_free_mappings_take_every_name() -> None:
    job = a_job("spec.task.arguments.hidden=256", "metadata.labels['a.b/c']=x=y")
    assert job.spec.task.arguments == {"hidden": 256}
    assert job.metadata.labels == {"a.b/c": "x=y"}


def test_an_index_changes_an_item_of_a_list() -> None:
    job = parse_job(STEPS, assignments=[f"{AT_SAMPLES}[1]=30"])
    steps = job.spec.strategy.only_downpour.optimizer.rule.schedule.steps
    assert steps is not None
    assert steps.at_samples == (10, 30)


def test_the_text_of_the_file_is_not_changed_for_the_next_parse() -> None:
    a_job("spec.seed=7")
    assert a_job().spec.seed == 0


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        (
            "spec.replicas.cuont=4",
            "job.yaml: spec.replicas.cuont: unknown field; did you mean 'count'?",
        ),
        (
            "spec.replica.count=4",
            "job.yaml: spec.replica: unknown field; did you mean 'replicas'?",
        ),
        (
            "replicas.count=4",
            "job.yaml: replicas: unknown field; did you mean 'spec.replicas.count'?",
        ),
        (
            "labels=4",
            "job.yaml: labels: unknown field; known here: apiVersion, kind, metadata, spec, status",
        ),
        (
            "spec.batchSize=0",
            "job.yaml: spec.batchSize: must be at least 1, got 0",
        ),
        (
            "spec.batchSize=.nan",
            "job.yaml: spec.batchSize: must be a finite number, got .nan",
        ),
        ("spec.seed=[1", "job.yaml: spec.seed: not YAML at column 3: while parsing a flow "),
        (
            f"{AT_SAMPLES}[2]=1",
            f"job.yaml: {AT_SAMPLES}[2]: {AT_SAMPLES} is a list with 2 items; "
            "give an index from 0, such as [0]",
        ),
        (
            f"{AT_SAMPLES}.first=1",
            f"job.yaml: {AT_SAMPLES}.first: {AT_SAMPLES} is a list with 2 items; "
            "give an index from 0, such as [0]",
        ),
        (
            "metadata.labels[0]=1",
            "job.yaml: metadata.labels[0]: metadata.labels is a mapping; give the name of a field",
        ),
        (
            "spec.batchSize.x=1",
            "job.yaml: spec.batchSize.x: spec.batchSize is a single value and has nothing in it "
            "that could be set",
        ),
        (
            "spec.seed",
            "job.yaml: an assignment is PATH=VALUE, for example spec.replicas.count=4, "
            "got 'spec.seed'",
        ),
        (
            "spec..seed=1",
            "job.yaml: an assignment is PATH=VALUE, for example spec.replicas.count=4, "
            "got 'spec..seed=1'",
        ),
        (
            "=1",
            "job.yaml: an assignment is PATH=VALUE, for example spec.replicas.count=4, got '=1'",
        ),
    ],
)
def test_an_assignment_that_cannot_be_made_says_why(assignment: str, expected: str) -> None:
    with pytest.raises(InvalidManifest) as caught:
        parse_job(STEPS, assignments=[assignment])
    (line,) = str(caught.value).splitlines()
    assert line.startswith(expected)
    assert line.endswith(" (given by --set)")


def test_all_bad_assignments_are_said_at_once() -> None:
    with pytest.raises(InvalidManifest) as caught:
        a_job("spec.batchSize=0", "spec.sed=1", "x")
    assert len(caught.value.findings) == 3


def test_an_assignment_mends_what_the_file_has_wrong() -> None:
    text = SMALL.replace("batchSize: 32", "batchSize: many")
    assert parse_job(text, assignments=["spec.batchSize=8"]).spec.batch_size == 8
