"""The commands on a cluster: what is meant, what is printed, how they end."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from builders.api_answers import (
    NAMESPACE,
    ApiInMemory,
    a_condition,
    a_job,
    a_pod,
    with_job,
)
from disttrain.cli import cluster_live, main, resume
from disttrain.cli.app import app
from disttrain.cluster import following, kubectl_text, kubernetes_api
from disttrain.cluster.client import Client, ClusterJob
from disttrain.cluster.errors import Forbidden, JobFailed, NotFound, NotInTime, WrongInput
from disttrain.cluster.interface import Object, Target
from disttrain.cluster.jobs import Jobs
from disttrain.cluster.resources import JOBS, PODS
from disttrain.launch.exit_code import ExitCode
from disttrain.launcher.supervision import State

LOG = PODS.path(NAMESPACE, "digits-shard-0", "log")
TRAINING = {
    "epoch": 1.5,
    "samples": 100,
    "samplesPerSecond": 50.4,
    "progressPercent": 75,
    "metrics": {"accuracy": 0.9},
    "stalenessP50": 1.5,
    "stalenessP99": 4,
}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> ApiInMemory:
    """An API server with a job, behind every kubeconfig."""
    found = with_job(a_job(phase="Running"), a_pod("digits-shard-0", "shard", containerID="1"))
    monkeypatch.setattr(kubernetes_api, "open_api", lambda _target: found)
    return found


def typed(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def spec(api: ApiInMemory) -> Object:
    found: Object = api.objects[JOBS.path(NAMESPACE, "digits")]["spec"]
    return found


@pytest.mark.parametrize(
    ("which", "target", "cluster"),
    [
        ("runs/digits-2026", Target(), False),
        ("a-folder", Target(), False),
        ("./digits", Target(), False),
        ("digits", Target(), True),
        ("dtj/digits", Target(), True),
        ("a-folder", Target(namespace="n"), True),
        ("dtj/a-folder", Target(), True),
    ],
)
def test_resume_tells_a_folder_from_a_job(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    which: str,
    target: Target,
    *,
    cluster: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-folder").mkdir()
    assert resume.means_cluster(which, target) is cluster


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("frist", "there is no folder frist here, so a job of a cluster is meant: "),
        ("dtj/frist", ""),
    ],
)
def test_a_resume_says_why_a_cluster_is_asked(api: ApiInMemory, which: str, said: str) -> None:
    error = typed("resume", which).exception
    assert isinstance(error, NotFound)
    assert str(error).startswith(f"{said}no job frist in namespace")
    assert JOBS.path(NAMESPACE, "frist") not in api.objects


def test_a_job_is_suspended_and_resumed(api: ApiInMemory) -> None:
    assert typed("suspend", "digits").output == "disttrainjob.disttrain.dev/digits suspended\n"
    assert spec(api)["suspend"] is True
    assert typed("resume", "dtj/digits").output == "disttrainjob.disttrain.dev/digits resumed\n"
    assert spec(api)["suspend"] is False
    assert isinstance(typed("resume", "dtj/digits").exception, WrongInput)


def test_objects_are_printed_as_json_yaml_and_names(api: ApiInMemory) -> None:
    job = api.objects[JOBS.path(NAMESPACE, "digits")]
    job["metadata"]["managedFields"] = [{"manager": "somebody"}]
    shown = json.loads(typed("get", "digits", "-o", "json").output)
    assert shown["spec"] == job["spec"]
    assert "managedFields" not in shown["metadata"]
    assert typed("list", "-o", "name").output == "disttrainjob.disttrain.dev/digits\n"
    assert typed("get", "digits", "-o", "yaml").output.startswith("apiVersion: disttrain.dev/")


def test_a_job_is_shown_to_somebody_who_may_not_see_pods(api: ApiInMemory) -> None:
    api.refusals[PODS.path(NAMESPACE)] = Forbidden("jane cannot list pods")
    page = typed("get", "digits")
    assert page.exit_code == 0
    assert "Phase:       Running" in page.output
    assert isinstance(typed("top", "digits").exception, Forbidden)


def test_logs_of_one_pod_have_no_prefix_and_of_several_have(api: ApiInMemory) -> None:
    api.texts[LOG] = "2026-01-01T00:00:01Z first\n2026-01-01T00:00:02Z second\n"
    assert typed("logs", "digits").output == "first\nsecond\n"
    prefixed = typed("logs", "digits", "--prefix", "--timestamps").output.splitlines()
    assert prefixed[0] == "[pod/digits-shard-0/disttrain] 2026-01-01T00:00:01Z first"


def test_a_pod_without_a_log_keeps_nobody_from_the_others(api: ApiInMemory) -> None:
    api.put(PODS, a_pod("digits-coordinator-0-x", "coordinator"))
    api.texts[LOG] = "2026-01-01T00:00:01Z first\n"
    result = typed("logs", "digits")
    assert result.exit_code == 0
    assert "[pod/digits-shard-0/disttrain] first" in result.output
    assert "error: pod digits-coordinator-0-x" in result.output


def test_a_job_is_deleted_and_its_volume_named(api: ApiInMemory) -> None:
    api.objects.pop(PODS.path(NAMESPACE, "digits-shard-0"))
    claims = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/digits-checkpoints"
    api.objects[claims] = {"metadata": {"name": "digits-checkpoints"}}
    result = typed("delete", "digits")
    assert result.output.splitlines() == [
        'disttrainjob.disttrain.dev "digits" deleted',
        "persistentvolumeclaim/digits-checkpoints is kept, with the model and the checkpoints",
    ]
    assert typed("delete", "digits", "--ignore-not-found").exit_code == 0


def test_a_volume_that_goes_with_its_job_is_not_said_to_be_kept(api: ApiInMemory) -> None:
    api.objects.pop(PODS.path(NAMESPACE, "digits-shard-0"))
    claims = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/digits-checkpoints"
    owned = {"name": "digits-checkpoints", "ownerReferences": [{"name": "digits"}]}
    api.objects[claims] = {"metadata": owned}
    assert "is kept" not in typed("delete", "digits").output


def test_names_are_completed(api: ApiInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_DISTTRAIN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "disttrain get dtj/di")
    monkeypatch.setenv("COMP_CWORD", "2")
    result = CliRunner().invoke(app, [], prog_name="disttrain")
    assert "dtj/digits" in result.output


@pytest.mark.parametrize(
    ("words", "shown"),
    [(["sus"], "suspend"), (["get", "dtj/"], "dtj/digits"), (["get", ""], "digits")],
)
@pytest.mark.usefixtures("api")
def test_kubectl_completes_the_plugin(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    shown: str,
) -> None:
    for name in ("_DISTTRAIN_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-disttrain", *words])
    assert main.complete_plugin() == 0
    assert capsys.readouterr().out.splitlines() == [shown, ":4"]


@pytest.mark.usefixtures("api")
def test_a_log_cannot_be_followed_into_the_past() -> None:
    refused = typed("logs", "digits", "--previous", "--follow")
    assert isinstance(refused.exception, WrongInput)


def test_a_job_of_a_cluster_has_the_display_of_a_run() -> None:
    shard = {"shards": [{"index": 0, "version": 12}]}
    lacking = a_condition("ReplicasAvailable", "False", "1 of 3")
    job = a_job(phase="Running", training=TRAINING, parameterServer=shard, conditions=[lacking])
    job["spec"]["stop"] = {"targetMetric": {"name": "accuracy", "atLeast": 0.9}}
    seen = following.observe(job, kubectl_text.now())
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff"}}}
    pods = [
        a_pod("digits-shard-0", "shard", restartCount=2),
        a_pod("digits-replica-x", "replica", **waiting),
    ]

    status = cluster_live.status_of(seen)
    first, second = cluster_live.processes(pods)

    assert status is not None
    assert (status.phase, status.training) == ("Running", seen.status.training)
    assert status.has_target
    assert status.limit == "ReplicasAvailable: 1 of 3"
    assert [(each.name, each.version) for each in status.members] == [(first.name, 12)]
    assert (first.state, first.restarts, second.state) == (State.RUNNING, 2, State.WAITING)


def test_before_the_operator_has_looked_there_is_nothing_to_show() -> None:
    assert cluster_live.status_of(following.observe(a_job(), kubectl_text.now())) is None


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        (
            "Complete",
            ExitCode.COMPLETE,
            "because\nThe model is model.safetensors in folder",
        ),
        ("Failed", ExitCode.FAILED, "Failed (TooManyRestarts): because"),
    ],
)
def test_following_a_job_ends_with_it_and_says_why(
    capsys: pytest.CaptureFixture[str], kind: str, code: ExitCode, words: str
) -> None:
    reason = {"Complete": "Done", "Failed": "TooManyRestarts"}[kind]
    job = a_job(
        phase=kind,
        training=TRAINING,
        conditions=[a_condition(kind, message="because", reason=reason)],
    )
    assert cluster_live.follow(Jobs(with_job(job), NAMESPACE), job) is code
    told = capsys.readouterr()
    assert words in told.out + told.err
    assert f"{kind.lower()} · 75% · epoch 1.50 · 100 samples" in told.out


def test_following_a_job_that_is_deleted_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert cluster_live.follow(Jobs(ApiInMemory(), NAMESPACE), a_job()) is ExitCode.FAILED
    assert "Failed (Deleted): no job digits" in capsys.readouterr().err


def test_a_program_waits_for_a_job(api: ApiInMemory) -> None:
    job = Client().get("digits")
    with pytest.raises(NotInTime, match="waited 0 s for job digits to end; it is Running"):
        job.wait(timeout_s=0)

    api.put(JOBS, a_job(phase="Complete", conditions=[a_condition("Complete")], training=TRAINING))
    training = job.wait().training
    assert training is not None
    assert training.metrics == {"accuracy": 0.9}

    api.put(JOBS, a_job(conditions=[a_condition("Failed", message="out of memory", reason="Oom")]))
    with pytest.raises(JobFailed, match=r"job digits failed \(Oom\): out of memory"):
        job.wait()

    api.objects.pop(JOBS.path(NAMESPACE, "digits"))
    with pytest.raises(JobFailed, match="no job digits"):
        job.wait()


def test_a_program_changes_jobs(api: ApiInMemory) -> None:
    client = Client()
    client.suspend("digits")
    assert spec(api)["suspend"] is True
    client.resume("digits")
    assert spec(api)["suspend"] is False
    api.texts[LOG] = "2026-01-01T00:00:01Z first\n"
    assert list(client.logs("digits", "shard")) == ["[digits-shard-0] first"]
    client.delete("digits", wait=False)
    assert client.list() == ()


@pytest.mark.parametrize(
    "change",
    [
        lambda job: job.scale(5),
        lambda job: job.suspend(),
        lambda job: job.resume(),
        lambda job: list(job.logs()),
    ],
)
def test_a_program_leaves_a_later_job_of_the_same_name_alone(
    api: ApiInMemory, change: Callable[[ClusterJob], object]
) -> None:
    job = Client().get("digits")
    later = a_job()
    later["metadata"]["uid"] = "later"
    api.put(JOBS, later)
    with pytest.raises(NotFound, match="was deleted, and another one has its name"):
        change(job)
    assert spec(api) == a_job()["spec"]
