"""Names, refusals and long answers: what goes between a person and the API server."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from builders.api_answers import NAMESPACE, ApiInMemory, a_job, with_job
from disttrain.cluster import kubernetes_api, resources
from disttrain.cluster.errors import (
    AlreadyThere,
    Conflict,
    Forbidden,
    NoAccess,
    NotFound,
    NotInstalled,
    Unreachable,
    WrongInput,
)
from disttrain.cluster.interface import Object, Request, Target, Verb
from disttrain.cluster.jobs import Jobs
from disttrain.cluster.resources import CONFIG_MAPS, JOBS, PODS
from disttrain.errors import DistTrainError


@pytest.mark.parametrize(
    "text",
    ["digits", "dtj/digits", "DTJ/digits", "disttrainjob/digits", "disttrainjobs/digits",
     "disttrainjob.disttrain.dev/digits", "disttrainjobs.v1alpha1.disttrain.dev/digits"],
)  # fmt: skip
def test_a_job_has_the_names_that_kubectl_knows(text: str) -> None:
    assert resources.job_name(text) == "digits"
    assert resources.is_qualified(text) is ("/" in text)


@pytest.mark.parametrize("text", ["pod/digits", "/digits", "dtj/", "", "a/b/c"])
def test_other_texts_name_no_job(text: str) -> None:
    assert not resources.is_qualified(text)
    with pytest.raises(WrongInput, match="expected NAME or dtj/NAME"):
        resources.job_name(text)


def test_a_missing_job_is_answered_with_the_nearest() -> None:
    near = resources.no_job("digit", "research", ["speech", "digits"])
    far = resources.no_job("x", "research", ["speech"])
    assert str(near) == "no job digit in namespace research; did you mean digits?"
    assert "disttrain list -A" in str(far)


@pytest.mark.parametrize(
    ("names", "selector", "everything", "chosen"),
    [
        (["a", "dtj/a", "b"], "", False, ["a", "b"]),
        ([], "team=vision", False, ["digits"]),
        ([], "", True, ["digits"]),
    ],
)
def test_jobs_are_chosen_one_way(
    names: list[str], selector: str, chosen: list[str], *, everything: bool
) -> None:
    jobs = Jobs(with_job(), NAMESPACE)
    assert jobs.choose(names, selector, everything=everything) == chosen


@pytest.mark.parametrize(
    ("names", "selector", "everything"),
    [([], "", False), (["a"], "b=c", False), (["a"], "", True), ([], "b=c", True)],
)
def test_jobs_chosen_no_way_or_two_are_refused(
    names: list[str], selector: str, *, everything: bool
) -> None:
    with pytest.raises(WrongInput, match="say which jobs"):
        Jobs(with_job(), NAMESPACE).choose(names, selector, everything=everything)


GET_JOB = resources.get(JOBS, "research", "digits")
GET_MAP = resources.get(CONFIG_MAPS, "research", "digits-code")
OF_NAME = {"details": {"name": "digits"}, "message": "not found"}


@pytest.mark.parametrize(
    ("code", "answer", "kind", "words"),
    [
        (401, {}, NoAccess, "choose another one with --context"),
        (403, {"message": "jane cannot get"}, Forbidden, "jane cannot get; .* the verb 'get'"),
        (404, OF_NAME, NotFound, "not found"),
        (404, {"message": "page not found"}, NotInstalled, "helm install disttrain"),
        (409, {"reason": "AlreadyExists"}, AlreadyThere, "409"),
        (409, {"reason": "Conflict", "message": "changed"}, Conflict, "changed"),
        (429, {}, Unreachable, "try again"),
        (503, {"message": "etcd"}, Unreachable, "etcd; try again"),
        (400, {"message": "no such field"}, WrongInput, "no such field"),
    ],
)
def test_refusals_say_what_to_do(
    code: int, answer: Object, kind: type[DistTrainError], words: str
) -> None:
    error = kubernetes_api.explain(code, answer, GET_JOB)
    assert type(error) is kind
    with pytest.raises(kind, match=words):
        raise error


def test_what_is_invalid_is_told_by_field_once() -> None:
    cause = {"field": "spec.batchSize", "message": "must be at least 1"}
    whole = {"field": "<nil>", "message": "exactly one strategy"}
    answer = {"message": "long", "details": {"name": "x", "causes": [cause, cause, whole]}}
    error = kubernetes_api.explain(422, answer, GET_JOB)
    assert str(error) == "spec.batchSize: must be at least 1\nexactly one strategy"


def test_only_for_jobs_a_missing_kind_means_a_missing_operator() -> None:
    assert type(kubernetes_api.explain(404, {}, GET_MAP)) is NotFound


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if nothing had imported it before.
    monkeypatch.delitem(sys.modules, kubernetes_api.__name__)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    without = importlib.import_module(kubernetes_api.__name__)
    monkeypatch.setattr("disttrain.cluster.kubernetes_api", kubernetes_api)
    with pytest.raises(DistTrainError, match=r"pip install kubernetes, .* extra 'cluster'"):
        without.open_api(Target())


CONTEXTS = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "secret"}}],
    "contexts": [
        {"name": "one", "context": {"cluster": "c", "user": "u"}},
        {"name": "two", "context": {"cluster": "c", "user": "u", "namespace": "theirs"}},
    ],
    "current-context": "one",
}


@pytest.mark.parametrize(
    ("context", "namespace", "expected"),
    [(None, None, "default"), ("two", None, "theirs"), ("two", "mine", "mine")],
)
def test_the_namespace_is_the_contexts_unless_one_is_given(
    tmp_path: Path, context: str | None, namespace: str | None, expected: str
) -> None:
    file = tmp_path / "config"
    file.write_text(json.dumps(CONTEXTS))
    api = kubernetes_api.open_api(Target(kubeconfig=file, context=context, namespace=namespace))
    assert api.namespace == expected


def test_kubeconfigs_are_merged_as_kubectl_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(json.dumps({**CONTEXTS, "contexts": [], "current-context": "two"}))
    # Its own current context does not count: the first file that names one decides.
    second.write_text(json.dumps({**CONTEXTS, "clusters": [], "users": []}))
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path / 'none'}:{second}")
    assert kubernetes_api.open_api(Target()).namespace == "theirs"


@pytest.mark.parametrize(
    ("content", "context", "words"),
    [
        (None, None, "no access to a cluster by the kubeconfig"),
        ("", None, "choose one with --kubeconfig and --context"),
        ("[", None, "no access"),
        (json.dumps(CONTEXTS), "three", "context three"),
    ],
)
def test_no_access_names_the_file_and_the_context(
    tmp_path: Path, content: str | None, context: str | None, words: str
) -> None:
    file = tmp_path / "config"
    if content is not None:
        file.write_text(content)
    with pytest.raises(NoAccess, match=words):
        kubernetes_api.open_api(Target(kubeconfig=file, context=context))


def test_a_pod_has_the_access_of_its_account_unless_it_has_a_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, account = tmp_path / "config", tmp_path / "namespace"
    monkeypatch.setenv("KUBECONFIG", str(file))
    account.write_text("the-pods\n")
    monkeypatch.setattr(kubernetes_api, "NAMESPACE_FILE", account)
    taken: list[object] = []

    def load(client_configuration: object) -> None:
        taken.append(client_configuration)

    monkeypatch.setattr("kubernetes.config.load_incluster_config", load)
    assert kubernetes_api.open_api(Target()).namespace == "the-pods"
    file.write_text(json.dumps(CONTEXTS))
    assert kubernetes_api.open_api(Target()).namespace == "default"
    assert len(taken) == 1


def test_an_api_server_that_is_away_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(json.dumps(CONTEXTS))
    api = kubernetes_api.open_api(Target(kubeconfig=file))
    with pytest.raises(Unreachable, match=r"https://127\.0\.0\.1:1 does not answer"):
        api.call(GET_JOB)


def test_lists_come_page_after_page() -> None:
    jobs = Jobs(_Pages(), NAMESPACE)
    assert jobs.names() == ["one", "two"]


class _Pages(ApiInMemory):
    """Gives one job at a time."""

    def call(self, request: Request) -> Object:
        if "continue" in request.query:
            return {"items": [a_job("two")], "metadata": {}}
        return {"items": [a_job("one")], "metadata": {"continue": "token"}}


def test_requests_have_the_verbs_that_access_rules_know() -> None:
    assert GET_JOB.path == "/apis/disttrain.dev/v1alpha1/namespaces/research/disttrainjobs/digits"
    assert resources.listing(JOBS, None).path == "/apis/disttrain.dev/v1alpha1/disttrainjobs"
    assert resources.delete(PODS, "n", "p", "uid").verb is Verb.DELETE


@pytest.mark.parametrize("body", ["<html>log in</html>", "[]", ""])
def test_an_answer_that_is_no_object_of_an_api_server_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    file = tmp_path / "config"
    file.write_text(json.dumps(CONTEXTS))
    api = kubernetes_api.open_api(Target(kubeconfig=file))
    monkeypatch.setattr(api, "text", lambda _request: body)
    with pytest.raises(
        Unreachable, match=r"https://127\.0\.0\.1:1 does not answer as an API server"
    ):
        api.call(GET_JOB)


def test_a_missing_job_is_missing_for_whoever_may_not_list_jobs() -> None:
    api = ApiInMemory()
    api.refusals[JOBS.path(NAMESPACE)] = Forbidden("jane cannot list")
    with pytest.raises(NotFound, match="no job digits in namespace research"):
        Jobs(api, NAMESPACE).get("digits")


def test_waiting_for_a_job_to_be_gone_asks_for_that_job_and_its_pods_alone() -> None:
    api = ApiInMemory()
    api.put(JOBS, a_job("other"))
    Jobs(api, NAMESPACE).wait_until_gone("digits", "uid-of-digits")
    assert [each.path for each in api.asked] == [
        JOBS.path(NAMESPACE, "digits"),
        PODS.path(NAMESPACE),
    ]


def test_only_the_job_that_is_meant_is_deleted() -> None:
    api = with_job()
    Jobs(api, NAMESPACE).delete("digits", "uid-of-digits")
    assert (api.asked[-1].body or {})["preconditions"] == {"uid": "uid-of-digits"}
