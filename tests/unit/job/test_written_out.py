"""The manifest as a run keeps it: YAML to read and edit, which means what the run meant."""

import pytest
import yaml

from builders.jobs import BATCH, SMALL, a_job
from disttrain.job import defaults
from disttrain.job.parsing import parse_job

MANY = (
    "spec.evaluation=null",
    "spec.replicas.callTimeoutSeconds=null",
    "spec.task.arguments={limit: null, file: '1e-3', rate: 1e-3, of: [{a: null}]}",
    "spec.replicas.template={spec: {nodeSelector: null}}",
    "spec.strategy.downpour.optimizer={sgd: {learningRate: 0.1, schedule: {constant: {}}}}",
)


@pytest.mark.parametrize("manifest", [SMALL, BATCH])
def test_a_manifest_that_is_kept_is_yaml_with_every_default_and_without_nulls(
    manifest: str,
) -> None:
    job = parse_job(manifest)
    text = defaults.written_out_text(job)
    assert "null" not in text
    assert "{\n" not in text
    assert "\n  seed: 0\n" in text
    assert parse_job(text) == job


def test_what_is_null_on_purpose_stays() -> None:
    job = a_job(*MANY)
    text = defaults.written_out_text(job)
    assert text.count("null") == 5
    assert parse_job(text) == job


def test_it_begins_with_what_it_is_for() -> None:
    assert defaults.written_out_text(a_job()).startswith(
        "# This run's manifest, with every default"
    )


def test_a_text_that_looks_like_another_value_is_quoted() -> None:
    kept = yaml.safe_load(defaults.written_out_text(a_job(*MANY)))
    assert kept["spec"]["task"]["arguments"]["file"] == "1e-3"
