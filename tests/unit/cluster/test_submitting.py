"""What `submit` sends: the manifest, the code of a folder, and what it refuses."""

import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from builders.api_answers import NAMESPACE, ApiInMemory, a_job, code_of
from builders.jobs import SMALL
from disttrain.cluster import code_folder, manifests, submission
from disttrain.cluster.errors import AlreadyThere, Forbidden, Unreachable, WrongInput
from disttrain.cluster.interface import Object, Request, Verb
from disttrain.cluster.jobs import Jobs
from disttrain.cluster.manifests import JobRequest
from disttrain.cluster.resources import CONFIG_MAPS, JOBS, Resource
from disttrain.job import parsing
from disttrain.job.finding import InvalidManifest


def a_wish(**metadata: str) -> JobRequest:
    assignments = [f"metadata.{name}={value}" for name, value in metadata.items()]
    code = "spec.task.source.configMap=digits-code"
    return manifests.parse(SMALL, "job.yaml", [*assignments, code])


def a_module() -> str:
    return f"{a_wish().job.spec.task.module}.py"


def a_folder(folder: Path, **files: bytes) -> Path:
    (folder / a_module()).write_text("# the task\n")
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def test_only_what_was_given_is_sent() -> None:
    sent = a_wish(name="digits").manifest("research", None)
    assert sent["metadata"] == {"name": "digits", "namespace": "research"}
    assert "seed" not in sent["spec"]
    assert "status" not in sent


def test_what_kubectl_shows_can_be_submitted_again() -> None:
    document = a_wish(uid="1-2", resourceVersion="'7'").manifest("research", None)
    assert not {"uid", "resourceVersion"} & document["metadata"].keys()


def test_a_name_is_made_of_a_generate_name() -> None:
    text = SMALL.replace(f"name: {a_wish().name}", "generateName: try-", 1)
    assert manifests.parse(text, "job.yaml", suffix="x7k2p").name == "try-x7k2p"
    names = {manifests.parse(text, "job.yaml").name for _ in range(20)}
    assert len(names) == 20


def test_a_value_is_a_manifest_too() -> None:
    value: Any = a_wish().manifest("research", None)
    assert manifests.of_value(value, "the job").name == a_wish().name
    value["metadata"] = {"generateName": "try-"}
    assert manifests.of_value(value, "the job", "abcde").name == "try-abcde"
    with pytest.raises(InvalidManifest, match=r"spec\.batchSize"):
        manifests.of_value({**value, "spec": {**value["spec"], "batchSize": 0}}, "the job")


def test_what_no_cluster_can_do_is_refused_here() -> None:
    with pytest.raises(InvalidManifest, match="pods share no memory"):
        manifests.parse(SMALL, "job.yaml", ["spec.transport=sharedMemory"])


def test_the_manifest_and_the_person_must_not_disagree_on_the_namespace() -> None:
    request = a_wish(namespace="theirs")
    assert manifests.namespace(request, None, "default") == "theirs"
    assert manifests.namespace(request, "theirs", "default") == "theirs"
    assert manifests.namespace(a_wish(), "mine", "default") == "mine"
    assert manifests.namespace(a_wish(), None, "default") == "default"
    with pytest.raises(WrongInput, match="drop one of them"):
        manifests.namespace(request, "mine", "default")


def test_a_folder_is_packed_without_caches_and_the_manifest(tmp_path: Path) -> None:
    a_folder(tmp_path, **{"table.bin": b"\xff\x00", "words.txt": "ö".encode()})
    for ignored in ("__pycache__", ".git", "runs", "venv"):
        (tmp_path / ignored).mkdir()
        (tmp_path / ignored / "x.py").write_text("")
    (tmp_path / "README.md").write_text("for people")
    (tmp_path / "old.pyc").write_bytes(b"")
    (tmp_path / "job.yaml").write_text(SMALL)
    (tmp_path / "pictures").mkdir()

    code = code_folder.read(tmp_path)
    made = code_folder.config_map("digits-code", code.files)

    assert made["data"] == {a_module(): "# the task\n", "words.txt": "ö"}
    assert base64.b64decode(made["binaryData"]["table.bin"]) == b"\xff\x00"
    assert code.folders == ("pictures",)


def test_a_link_to_a_file_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of this machine")
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "task.py").write_text("")
    (folder / "same.py").symlink_to("task.py")
    assert set(code_folder.read(folder).files) == {"task.py", "same.py"}

    (folder / "words.txt").symlink_to(secret)
    with pytest.raises(WrongInput, match=r"words.txt is a link to .*secret"):
        code_folder.read(folder)


def test_too_much_code_is_refused_with_the_biggest_files_and_a_way_out(tmp_path: Path) -> None:
    a_folder(tmp_path, small=b"x", big=bytes(600_000), bigger=bytes(700_000))
    with pytest.raises(WrongInput) as caught:
        code_folder.read(tmp_path)
    text = str(caught.value)
    assert "1,300,012 bytes in 4 files" in text
    assert "bigger (700,000 bytes), big (600,000 bytes)" in text
    assert "spec.image" in text


def test_exactly_what_fits_is_packed() -> None:
    code_folder.require_fitting({"a": code_folder.MOST_BYTES - 1, "b": 1}, "here")
    with pytest.raises(WrongInput):
        code_folder.require_fitting({"a": code_folder.MOST_BYTES, "b": 1}, "here")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: (folder / "my file.py").write_text(""), "'my file.py'"),
        (lambda folder: (folder / "a").mkdir() or (folder / "a" / "b.py").write_text(""), "a/b.py"),
        (
            lambda folder: (folder / a_module()).unlink(),
            "holds no files",
        ),
    ],
)
def test_files_that_would_be_missing_are_refused(tmp_path: Path, make: Any, words: str) -> None:
    make(a_folder(tmp_path))
    with pytest.raises(WrongInput, match=words):
        code_folder.read(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(WrongInput, match=r"must be a folder that can be read: No such file"):
        code_folder.read(tmp_path / "none")


def test_the_folder_must_have_the_module_of_the_entrypoint(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("")
    with pytest.raises(WrongInput, match=r"which spec\.task\.entrypoint .* there: other\.py"):
        submission.read_code(a_wish(), tmp_path)


def submitted(api: ApiInMemory, folder: Path, **how: bool) -> submission.Submitted:
    request = a_wish(name="digits")
    code = submission.read_code(request, a_folder(folder))
    return submission.submit(Jobs(api, NAMESPACE), request, code, **how)


def test_the_code_goes_with_its_job(tmp_path: Path) -> None:
    api = ApiInMemory()
    done = submitted(api, tmp_path)
    code = code_of(api)
    name = code["metadata"]["name"]
    assert done.job["spec"]["task"]["source"] == {"configMap": name}
    (owner,) = code["metadata"]["ownerReferences"]
    assert owner["uid"] == done.job["metadata"]["uid"]
    assert done.notes == (f"configmap/{name} created",)


def test_code_that_is_packed_never_has_the_name_of_other_code(tmp_path: Path) -> None:
    code = submission.read_code(a_wish(), a_folder(tmp_path))
    names = {submission.code_name(a_wish(), code) for _ in range(20)}
    assert len(names) == 20
    assert all(str(name).startswith("digits-code-") for name in names)
    assert submission.code_name(a_wish(), None) == "digits-code"
    unnamed = manifests.parse(SMALL, "job.yaml", ["metadata.name=other"])
    assert str(submission.code_name(unnamed, code)).startswith("other-code-")


def test_a_dry_run_makes_nothing(tmp_path: Path) -> None:
    api = ApiInMemory()
    done = submitted(api, tmp_path, dry_run=True)
    assert api.objects == {}
    assert done.notes[-1].endswith(" created (server dry run)")
    assert done.job["spec"]["task"]["source"]["configMap"].startswith("digits-code-")


def test_a_refused_job_leaves_no_config_map(tmp_path: Path) -> None:
    api = ApiInMemory()
    api.refusals[JOBS.path(NAMESPACE)] = WrongInput("spec: refused")
    with pytest.raises(WrongInput, match="refused"):
        submitted(api, tmp_path)
    assert api.objects == {}


def test_a_name_in_use_is_answered_with_ways_out(tmp_path: Path) -> None:
    api = ApiInMemory()
    api.put(JOBS, a_job(phase="Complete"))
    with pytest.raises(AlreadyThere) as caught:
        submitted(api, tmp_path)
    for words in ("(Complete, ", "disttrain delete digits", "generateName: digits-"):
        assert words in str(caught.value)


class _SecondRefused(ApiInMemory):
    """Takes a job when it is tried, and not when it is to be made: another one came before."""

    def _create(self, request: Request) -> Object:
        if request.path == JOBS.path(NAMESPACE) and request.query.get("dryRun") != "All":
            self.put(JOBS, a_job(phase="Running"))
            raise AlreadyThere(request.path)
        return super()._create(request)


def test_a_job_that_another_came_before_is_explained_and_leaves_no_code(tmp_path: Path) -> None:
    api = _SecondRefused()
    with pytest.raises(AlreadyThere, match="generateName: digits-"):
        submitted(api, tmp_path)
    assert list(api.objects) == [JOBS.path(NAMESPACE, "digits")]


@dataclass
class _Unanswered(ApiInMemory):
    """Makes one thing without an answer."""

    which: Resource = JOBS
    error: BaseException = field(default_factory=lambda: Unreachable("no answer in time"))

    def _create(self, request: Request) -> Object:
        made = super()._create(request)
        if request.path == self.which.path(NAMESPACE) and request.query.get("dryRun") != "All":
            raise self.error
        return made


@pytest.mark.parametrize("which", [JOBS, CONFIG_MAPS])
@pytest.mark.parametrize("error", [Unreachable("no answer"), KeyboardInterrupt(), Forbidden("no")])
def test_a_job_without_an_answer_is_taken_back_and_its_code_always_has_an_owner(
    tmp_path: Path, which: Resource, error: BaseException
) -> None:
    api = _Unanswered(which=which, error=error)
    with pytest.raises(type(error)):
        submitted(api, tmp_path)
    assert JOBS.path(NAMESPACE, "digits") not in api.objects
    assert all(each["metadata"]["ownerReferences"] for each in api.objects.values())


def test_a_config_map_that_is_missing_is_noticed_before_pods_wait_for_it() -> None:
    api = ApiInMemory()
    with pytest.raises(WrongInput, match="there is no configmap digits-code"):
        submission.submit(Jobs(api, NAMESPACE), a_wish(), None)
    assert not [each for each in api.asked if _makes(each.verb, dict(each.query))]


def test_whoever_may_not_read_config_maps_may_submit() -> None:
    api = ApiInMemory()
    path = CONFIG_MAPS.path(NAMESPACE, "digits-code")
    api.refusals[path] = Forbidden("no")
    done = submission.submit(Jobs(api, NAMESPACE), a_wish(), None)
    assert done.job["metadata"]["name"] == a_wish().name


def test_a_parsed_job_is_sent_as_it_was_written() -> None:
    job = parsing.parse_job(SMALL)
    assert manifests.of_job(job, "the job").manifest("n", None)["spec"]["batchSize"] == (
        job.spec.batch_size
    )


def _makes(verb: Verb, query: dict[str, str]) -> bool:
    return verb is Verb.CREATE and query.get("dryRun") != "All"
