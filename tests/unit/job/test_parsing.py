"""What is said about manifests that are wrong: path, rule, value seen, line; all at once."""

import pytest

from builders.jobs import SMALL, a_job, complaints, edited
from disttrain.job.finding import InvalidManifest, Severity
from disttrain.job.parsing import parse_job, parse_jobs

DOWNPOUR = "spec.strategy.downpour"
OPTIMIZER = f"{DOWNPOUR}.optimizer"


def test_the_smallest_manifest_gets_every_default() -> None:
    spec = a_job().spec
    assert (spec.replicas.count, spec.shards, spec.seed) == (1, 1, 0)
    assert spec.strategy.only_downpour.max_in_flight == 1
    assert spec.strategy.only_downpour.optimizer.rule.schedule.constant is not None
    assert spec.evaluation is not None
    assert spec.evaluation.every_epochs == 1
    assert spec.checkpoint.keep_last == 3


def test_everything_wrong_is_said_at_once_in_the_order_of_the_file() -> None:
    text = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: Digits}
spec:
  task: {entrypoint: digits}
  strategy:
    downpour:
      pushEvery: 0
      optimizer:
        sgd: {learningRate: -1}
        adagrad: {learningRate: x, schedule: {steps: {atSamples: [3, 2]}}}
  batchSize: 32
  batchSize: 33
  stop: {epoch: 3}
  coordinator: {leaseSeconds: 1}
  replicas: {device: 3, count: 0}
"""
    paths = [line.split(": ")[1] for line in complaints(text)]
    assert paths == [
        "metadata.name",
        "spec.task.entrypoint",
        f"{DOWNPOUR}.pushEvery",
        OPTIMIZER,
        f"{OPTIMIZER}.sgd.learningRate",
        f"{OPTIMIZER}.adagrad.learningRate",
        f"{OPTIMIZER}.adagrad.schedule.steps",
        "spec.batchSize",
        "spec.stop.epoch",
        "spec.coordinator.leaseSeconds",
        "spec.replicas.count",
        "spec.replicas.device",
    ]


def test_a_rule_is_silent_while_a_field_that_it_reads_is_wrong() -> None:
    text = edited("batchSize: 32", "batchSize: x\n  portionSize: 33")
    assert [line.split(": ")[1] for line in complaints(text)] == ["spec.batchSize"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "job.yaml: the file is empty; a job was expected"),
        ("# only a remark\n---\n", "job.yaml: the file is empty; a job was expected"),
        ("3", "job.yaml:1: must be a mapping, got 3 (number)"),
        ("- a", "job.yaml:1: must be a mapping, got a list"),
        ("a: b: c", "job.yaml:1: not YAML at column 5: mapping values are not allowed here"),
        ("\na: [1,\n", "job.yaml:3: not YAML at column 1: while parsing a flow node, "),
        ("a: \x00", "job.yaml: not YAML: unacceptable character #x0000"),
        (f"{SMALL}---\n{SMALL}", "job.yaml:12: must hold one job, got 2 YAML documents; "),
    ],
)
def test_texts_that_hold_no_single_job_say_why(text: str, expected: str) -> None:
    (line,) = complaints(text)
    assert line.startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: " + "[" * 1000, "job.yaml:1: nested too deeply: more than 50 levels of nesting"),
        ("&a [*a]", "job.yaml:1: nested too deeply: more than 50 levels of nesting"),
        (
            "a0: &a0 [1, 1, 1, 1]\n"
            + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)),
            "too large: more than 5000 values, aliases expanded",
        ),
        ("a: [" + "1," * 500_000 + "]", "more than 5000 values, aliases expanded"),
        ("x" * (2**20 + 1), "must be at most 1048576 bytes, got 1048577"),
        (f"a: {'9' * 5000}", "must have at most 300 digits, got 5000"),
    ],
)
def test_texts_that_would_exhaust_the_machine_are_refused(text: str, expected: str) -> None:
    assert any(expected in line for line in complaints(text))


def test_aliases_are_expanded() -> None:
    text = edited("entrypoint: digits:Digits", "entrypoint: digits:Digits, arguments: {a: &x 3}")
    job = parse_job(text.replace("batchSize: 32", "batchSize: *x"))
    assert job.spec.batch_size == 3


def test_numbers_are_those_of_yaml_1_2() -> None:
    job = parse_job(edited("digits:Digits}", "m:C, arguments: {a: 1e-3, b: no, c: 010, d: 1:30}}"))
    assert job.spec.task.arguments == {"a": 0.001, "b": "no", "c": "010", "d": "1:30"}


def test_quoted_texts_stay_texts() -> None:
    job = parse_job(edited("digits:Digits}", 'm:C, arguments: {a: "1", b: !!str 1, c: "<<"}}'))
    assert job.spec.task.arguments == {"a": "1", "b": "1", "c": "<<"}


def test_null_is_the_same_as_leaving_an_option_out() -> None:
    text = edited("{sgd: {learningRate: 0.1}}", "{sgd: {learningRate: 0.1}, adagrad: null}")
    assert parse_job(text) == parse_job(SMALL)


def test_a_target_alone_is_a_warning_and_the_job_is_good() -> None:
    text = edited("{epochs: 1}", "{targetMetric: {name: accuracy, atLeast: 0.9}}")
    (parsed,) = parse_jobs(text)
    assert parsed.job is not None
    (finding,) = parsed.findings
    assert finding.severity is Severity.WARNING
    assert finding.located("job.yaml").startswith("job.yaml:10: warning: spec.stop.targetMetric: ")


def test_checkpoints_that_save_nothing_are_a_warning() -> None:
    extra = "batchSize: 32\n  parameterServer: {durability: none}\n  checkpoint: {keepLast: 1}"
    (parsed,) = parse_jobs(edited("batchSize: 32", extra))
    assert parsed.job is not None
    assert [str(finding.severity) for finding in parsed.findings] == ["warning"]


def test_a_file_may_hold_several_jobs_for_validation() -> None:
    second = SMALL.replace("batchSize: 32", "batchSize: 0")
    good, bad = parse_jobs(f"{SMALL}---\n{second}---\n")
    assert good.job is not None
    assert bad.job is None
    assert bad.findings[0].line == 20


def test_the_findings_of_an_error_can_be_read_one_by_one() -> None:
    with pytest.raises(InvalidManifest) as caught:
        parse_job(edited("batchSize: 32", "batchSize: 0"), source="x.yaml")
    (finding,) = caught.value.findings
    assert (finding.path, finding.line) == (("spec", "batchSize"), 9)
    assert caught.value.source == "x.yaml"


def test_escaped_surrogate_pairs_are_one_character() -> None:
    job = parse_job(edited("digits:Digits}", r'm:C, arguments: {a: "\ud83d\ude00"}}'))
    assert job.spec.task.arguments == {"a": "\N{GRINNING FACE}"}


def test_half_a_character_is_refused() -> None:
    (line,) = complaints(edited("digits:Digits}", r'm:C, arguments: {a: "\ud83d"}}'))
    assert line.startswith("job.yaml:5: spec.task.arguments.a: must be text, got half a character")


def test_a_file_full_of_mistakes_is_refused_soon() -> None:
    text = SMALL + "".join(f"x{index}: 1\n" for index in range(3000))
    lines = complaints(text)
    assert len(lines) == 101
    assert "job.yaml:1: more than 100 findings; the others are not shown" in lines
