"""`disttrain run` and `submit` say once what a manifest that they take makes them warn of."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from builders.api_answers import NAMESPACE, ApiInMemory
from builders.jobs import SMALL
from disttrain.cli import run
from disttrain.cli.app import app
from disttrain.cluster import kubernetes_api, manifests
from disttrain.cluster.client import Client
from disttrain.cluster.resources import JOBS
from disttrain.job import parsing

WARNED = SMALL.replace("{epochs: 1}", "{targetMetric: {name: accuracy, atLeast: 0.9}}")
SAID = "warning: spec.stop.targetMetric: is the only "


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(WARNED)
    return "job.yaml"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> ApiInMemory:
    """An API server without jobs, behind every kubeconfig."""
    found = ApiInMemory()
    monkeypatch.setattr(kubernetes_api, "open_api", lambda _target: found)
    return found


def typed(*words: str) -> Result:
    return CliRunner().invoke(app, words, catch_exceptions=False)


def test_run_warns_in_a_line_of_the_standard_error(
    manifest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "train", lambda *_: 0)
    done = typed("run", manifest)
    assert done.exit_code == 0
    assert done.stderr.startswith(f"job.yaml:10: {SAID}")
    assert (done.stderr.count("\n"), done.stdout) == (1, "")


def test_a_value_that_was_set_is_warned_of_without_a_line(
    manifest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("job.yaml").write_text(SMALL)
    monkeypatch.setattr(run, "train", lambda *_: 0)
    stop = "spec.stop={targetMetric: {name: accuracy, atLeast: 0.9}}"
    assert typed("run", manifest, "--set", stop).stderr.startswith(f"job.yaml: {SAID}")


@pytest.mark.parametrize("how", ["--dry-run=client", "--dry-run=server", "--dry-run=none"])
def test_submit_warns_beside_what_machines_read(api: ApiInMemory, manifest: str, how: str) -> None:
    done = typed("submit", manifest, "-o", "json", how)
    assert done.exit_code == 0
    assert done.stderr.startswith(f"job.yaml:10: {SAID}")
    assert done.stderr.count("\n") == 1
    assert json.loads(done.stdout)["metadata"]["name"] == "digits"


def test_a_program_gets_a_warning_of_python(api: ApiInMemory, manifest: str) -> None:
    with pytest.warns(UserWarning, match=rf"^job\.yaml:10: {SAID}"):
        Client().submit(manifest)
    assert api.objects[JOBS.path(NAMESPACE, "digits")]["spec"]["stop"]["targetMetric"]


def test_values_and_parsed_jobs_are_warned_of_too() -> None:
    job = parsing.parse_job(WARNED)
    value = job.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for request in (manifests.of_value(value, "the job"), manifests.of_job(job, "the job")):
        (said,) = request.warnings
        assert said.startswith(f"the job: {SAID}")


def test_without_a_warning_nothing_is_said(
    manifest: str, api: ApiInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("job.yaml").write_text(SMALL)
    monkeypatch.setattr(run, "train", lambda *_: 0)
    assert typed("run", manifest).stderr == ""
    assert typed("submit", manifest).stderr == ""
