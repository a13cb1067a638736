"""Whatever is written: a job, or InvalidManifest; and a job written down is the same job."""

import json

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders.jobs import SMALL, a_job
from disttrain.job import defaults, fields, validation
from disttrain.job.document import read
from disttrain.job.finding import InvalidManifest
from disttrain.job.parsing import parse_job, parse_jobs
from disttrain.job.spec import DistTrainJob

NAMES = [
    *fields.by_name(DistTrainJob),
    *("name", "strategy", "downpour", "optimizer", "sgd", "learningRate", "stop", "steps"),
]
WORDS = ["disttrain.dev/v1alpha1", "DistTrainJob", "digits", "digits:Digits"]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS
    | st.sampled_from(["disttrain.dev/v1alpha1", "DistTrainJob", "digits", "digits:Digits"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=20,
)
# Two busy cores make any deadline unreliable.
patient = settings(deadline=None, max_examples=60)
SMALL_VALUE = yaml.safe_load(SMALL)


def paths(value: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    inner = value.items() if isinstance(value, dict) else ()
    return [path, *(found for name, each in inner for found in paths(each, (*path, name)))]


def parses(text: str) -> None:
    """Nothing but InvalidManifest may be raised, and it always names something."""
    raised: InvalidManifest | None = None
    try:
        parse_job(text)
    except InvalidManifest as error:
        raised = error
    assert raised is None or (raised.findings and str(raised))


@patient
@given(st.text())
def test_any_text_is_a_job_or_an_invalid_manifest(text: str) -> None:
    parses(text)


@patient
@given(st.text(alphabet="{}[]:,-&*!|>%@`'\"#? \n\tab1.~<"))
def test_any_punctuation_is_a_job_or_an_invalid_manifest(text: str) -> None:
    parses(text)


@patient
@given(VALUES)
def test_any_value_is_a_job_or_an_invalid_manifest(value: object) -> None:
    parses(yaml.safe_dump(value))


@patient
@given(st.sampled_from(paths(SMALL_VALUE)[1:]), VALUES)
def test_any_value_at_any_path_is_a_job_or_an_invalid_manifest(
    path: tuple[str, ...], value: object
) -> None:
    changed = yaml.safe_load(SMALL)
    around = changed
    for name in path[:-1]:
        around = around[name]
    around[path[-1]] = value
    parses(yaml.safe_dump(changed))


ASSIGNMENTS = st.fixed_dictionaries(
    {},
    optional={
        "spec.batchSize": st.integers(1, 10**9),
        "spec.seed": st.integers(0, 2**63 - 1),
        "spec.evaluation": st.sampled_from(["{}", "{everyEpochs: null, everySeconds: 1.5}"]),
        "spec.replicas": st.sampled_from(["{count: 4096, device: cuda}", "{threads: 2}"]),
        "spec.transport": st.sampled_from(
            ["auto", "tcp", "{kind: sharedMemory}", "{kind: tcp, encryption: none}"]
        ),
        "spec.stop": st.sampled_from(
            ["{seconds: 1e-3}", "{steps: 1, targetMetric: {name: loss, atMost: -1}}"]
        ),
        "spec.strategy.downpour.optimizer": st.sampled_from(
            [
                "{adagrad: {learningRate: 1, epsilon: 1e-5}}",
                "{momentum: {learningRate: 0.1, nesterov: true, clipNorm: 5}}",
                "{sgd: {learningRate: 0.1, schedule: {steps: {atSamples: [1, 2]}}}}",
                "{sgd: {learningRate: 0.1, schedule: {cosine: {samples: 100}}}}",
            ]
        ),
        "spec.task.arguments": st.dictionaries(
            st.text(max_size=5),
            st.none()
            | st.booleans()
            | st.integers(-(2**70), 2**70)
            | st.floats(-(2.0**80), 2.0**80, width=32)
            | st.text(max_size=5)
            | st.sampled_from(["1e-3", "0o17", "yes", "<<", "=", "2024-01-01", "~"]),
            max_size=3,
        ),
    },
)


def written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@patient
@given(ASSIGNMENTS)
@example({"spec.task.arguments": {"\x85": "a\u2028b"}})
def test_a_job_that_is_written_down_and_read_again_is_the_same(
    assignments: dict[str, object],
) -> None:
    job = a_job(*(f"{path}={written(value)}" for path, value in assignments.items()))
    assert parse_job(json.dumps(job.model_dump(mode="json", by_alias=True))) == job
    assert parse_job(defaults.written_out_text(job)) == job


@patient
@given(VALUES)
def test_validation_never_says_the_same_twice(value: object) -> None:
    for document in read(yaml.safe_dump(value)):
        findings = validation.validate(document.value, document.findings).findings
        assert len(set(findings)) == len(findings)


@patient
@given(VALUES)
def test_every_document_has_a_job_or_a_reason(value: object) -> None:
    for parsed in parse_jobs(yaml.safe_dump(value)):
        assert parsed.job is not None or parsed.findings
