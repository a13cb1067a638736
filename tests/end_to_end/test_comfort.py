"""`disttrain submit` and the others, as people type them, against a real API server."""

import json
import re
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

import disttrain
from builders import cluster_jobs, operator_process, pod_metrics, pods, product_images
from builders.people import Person
from builders.pretended_training import PretendedTraining
from cluster import Kubectl, commands
from disttrain.cluster.errors import AlreadyThere, NotFound, NotInTime
from disttrain.job import cluster_labels
from disttrain.job.names import Role
from disttrain.launch.exit_code import ExitCode
from disttrain_generators import crd

pytestmark = pytest.mark.landing

JOB: Final = "digits-small"
DIGITS: Final = "examples/digits/job-small.yaml"
RESOURCE: Final = f"disttrainjob.disttrain.dev/{JOB}"
EPOCHS: Final = 8
"""Long enough to look at it while it trains, by commands that take seconds."""
TRAINING_LIMIT: Final = timedelta(minutes=8)
"""PyTorch is imported five times, on cores that others use, too."""
ENDS: Final = {"Complete": ExitCode.COMPLETE, "Failed": ExitCode.FAILED}
PATIENCE_SECONDS: Final = 120
"""For what takes a moment: a process that ends wants a core, too."""


@pytest.fixture
def person(namespace: Kubectl) -> Person:
    """Somebody in a namespace of a cluster that knows of jobs."""
    namespace.apply(crd.definition())
    namespace.wait_until("Established", f"crd/{crd.NAME}")
    return Person(namespace)


@pytest.fixture
def submitted(person: Person) -> Iterator[Person]:
    """A namespace with a job that no operator looks at."""
    made = person.types(f"disttrain submit {DIGITS} --code examples/digits")
    assert made.code == 0, made.err
    yield person
    person.kubectl.run("delete", RESOURCE, "--ignore-not-found")


@pytest.mark.usefixtures("runtime_image", "operator")
def test_a_job_is_submitted_followed_to_its_end_and_deleted(person: Person, tmp_path: Path) -> None:
    made = person.types(
        f"disttrain submit {DIGITS} --code examples/digits --set spec.suspend=true "
        f"--set spec.stop.epochs={EPOCHS}"
    )
    assert (made.code, made.err) == (0, "")
    code, job = made.out.splitlines()
    assert re.fullmatch(r"configmap/digits-code-\w{5} created", code)
    assert job == f"{RESOURCE} created"
    commands.wait_until(lambda: phase(person) == "Suspended", "the job is suspended")
    assert person.types("disttrain list").rows[JOB][:3] == [JOB, "Suspended", "downpour"]

    assert person.types(f"disttrain resume dtj/{JOB}").out == f"{RESOURCE} resumed\n"
    shown, logged = tmp_path / "shown.txt", tmp_path / "logged.txt"
    with (
        person.starts(f"disttrain get {JOB} --watch", shown) as watching,
        person.starts(f"disttrain logs {JOB} --follow --role coordinator", logged) as logging,
    ):
        see_it_train(person)
        assert watching.wait(TRAINING_LIMIT.total_seconds()) == 0, shown.read_text()
        # The log of a job that has ended ends by itself.
        assert logging.wait(PATIENCE_SECONDS) == 0, logged.read_text()

    lines = shown.read_text().splitlines()
    assert any(" samples" in line and "test accuracy" in line for line in lines), lines
    assert lines[-2].startswith("Complete ("), lines
    assert f"[pod/{JOB}-coordinator-0-" in logged.read_text()
    look_back(person)
    delete_it(person)


@pytest.mark.parametrize("phase", list(ENDS))
@pytest.mark.usefixtures("small_image")
def test_submit_waits_for_the_end_and_exits_like_run(
    person: Person, tmp_path: Path, phase: str
) -> None:
    job = PretendedTraining(person.kubectl, "awaited")
    file, shown = tmp_path / "job.yaml", tmp_path / "shown.txt"
    file.write_text(yaml.safe_dump(cluster_jobs.pretending(job.name)))
    with (
        operator_process.running(person.kubectl, tmp_path / "operator.log"),
        person.starts(f"disttrain submit {file} --wait", shown) as waiting,
    ):
        job.wait_until(lambda: job.has(job.resource), "it is submitted")
        job.wait_for_phase("Running")
        assert waiting.poll() is None
        job.finish(phase, "Decided", "by the test")
        assert waiting.wait(PATIENCE_SECONDS) == ENDS[phase], shown.read_text()
        job.delete()
    assert "disttrainjob.disttrain.dev/awaited created" in shown.read_text()
    assert f"{phase} (Decided): by the test" in shown.read_text()


def see_it_train(person: Person) -> None:
    """While it trains: its pods' figures; fewer replicas."""
    commands.wait_until(
        lambda: phase(person) in {"Running", "Complete"}, "it trains", limit=TRAINING_LIMIT
    )
    assert person.types(f"disttrain scale {JOB} --replicas=1").out == f"{RESOURCE} scaled\n"
    assert manifest(person)["spec"]["replicas"]["count"] == 1
    commands.wait_until(
        lambda: sees_figures(person) or phase(person) == "Complete",
        "pods have figures",
        limit=TRAINING_LIMIT,
    )


def sees_figures(person: Person) -> bool:
    """Whether the pods' own metrics are shown."""
    top = person.types(f"disttrain top {JOB}")
    assert top.code == 0, top.err
    assert "metrics API" in top.err or "no pods" in top.err
    # Beside its name and its state a pod that trains has a rate and the staleness.
    return any("/" in row[-1] for name, row in top.rows.items() if name.startswith(JOB))


def look_back(person: Person) -> None:
    """After the end: what there is to read."""
    page = person.types(f"disttrain get {JOB}")
    assert page.code == 0, page.err
    assert page.rows["Phase:"] == ["Phase:", "Complete"]
    assert page.rows["Progress:"][1].endswith("%,")
    assert "accuracy" in page.rows["Measures:"]
    assert "ago," in page.rows["Checkpoint:"]
    assert page.rows["Complete"][1] == "True"

    events = person.types(f"disttrain events {JOB}")
    assert f"pod/{JOB}-shard-0" in events.out
    assert f"disttrainjob/{JOB}" in events.out

    log = person.types(f"disttrain logs {JOB} --role coordinator --tail 3 --no-prefix")
    assert 1 <= len(log.out.splitlines()) <= 3, log
    # The numbers of its pods may be told meanwhile.
    commands.wait_until(
        lambda: manifest(person) == json.loads(person.types(f"disttrain get {JOB} -o json").out),
        "both show the same",
    )

    client = disttrain.Client(person.kubectl.namespace, kubeconfig=person.kubectl.kubeconfig)
    status = client.get(JOB).wait(timeout_s=30)
    assert status.training is not None
    assert status.training.metrics["accuracy"] == pytest.approx(
        manifest(person)["status"]["training"]["metrics"]["accuracy"]
    )
    assert any(line.startswith(f"[{JOB}-coordinator") for line in client.logs(JOB))


def delete_it(person: Person) -> None:
    """Its ConfigMap goes with it, its volume stays."""
    deleted = person.types(f"disttrain delete {JOB}", seconds=200)
    assert deleted.code == 0, deleted.err
    assert f'"{JOB}" deleted' in deleted.out
    assert f"{JOB}-checkpoints is kept" in deleted.out
    assert not person.kubectl.items("pods", f"app.kubernetes.io/instance={JOB}")
    commands.wait_until(
        lambda: "digits-code" not in person.kubectl.run("get", "configmaps", "-o", "name"),
        "the code is gone",
    )


def test_kubectl_finds_the_commands_as_a_plugin(submitted: Person) -> None:
    listed = submitted.types("kubectl disttrain list")
    assert listed.rows[JOB][0] == JOB
    columns = submitted.kubectl.run("get", "dtj").splitlines()[0]
    assert listed.out.splitlines()[0].split() == columns.split()

    suspended = submitted.types(f"kubectl disttrain suspend dtj/{JOB}")
    assert suspended.out == f"{RESOURCE} suspended\n"
    assert manifest(submitted)["spec"]["suspend"] is True


@pytest.mark.nightly
def test_top_shows_what_pods_use_where_the_cluster_measures_it(submitted: Person) -> None:
    pod = pods.restricted("measured")
    uid = manifest(submitted)["metadata"]["uid"]
    pod["metadata"]["labels"] |= cluster_labels.of_role(JOB, uid, Role.SHARD)
    submitted.kubectl.apply(pod)

    without = submitted.types(f"disttrain top {JOB}")
    assert "the cluster has no metrics API" in without.err
    assert without.rows["measured"][-1] != "128Mi"
    with pod_metrics.served(submitted.kubectl, "measured", {"cpu": "250m", "memory": "128Mi"}):
        found = submitted.types(f"disttrain top {JOB}")
    assert found.code == 0, found.err
    assert "metrics API" not in found.err
    assert found.rows["POD"][-2:] == ["CPU", "MEMORY"]
    assert found.rows["measured"][-2:] == ["250m", "128Mi"]


@pytest.mark.nightly
def test_a_job_that_no_operator_looks_at_says_how_to_look(submitted: Person) -> None:
    def shown() -> str:
        return submitted.types(f"disttrain get {JOB}").out

    commands.wait_until(lambda: "no operator has looked at this job" in shown(), "the hint")
    client = disttrain.Client(submitted.kubectl.namespace, kubeconfig=submitted.kubectl.kubeconfig)
    with pytest.raises(NotInTime, match="no operator has looked"):
        client.get(JOB).wait(timeout_s=0)


def test_whoever_stops_watching_leaves_the_job_alone(submitted: Person, tmp_path: Path) -> None:
    shown = tmp_path / "shown.txt"
    with submitted.starts(f"disttrain get {JOB} --watch", shown) as watching:
        # It has said so once it has looked: from then on it handles Ctrl-C.
        commands.wait_until(lambda: "no operator" in shown.read_text(), "it watches")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(PATIENCE_SECONDS) == 130
    assert f"{JOB} goes on without you" in shown.read_text()
    assert manifest(submitted)["metadata"]["name"] == JOB


def test_new_rows_are_printed_while_a_list_is_watched(submitted: Person, tmp_path: Path) -> None:
    shown = tmp_path / "shown.txt"
    with submitted.starts("disttrain list --watch", shown):
        commands.wait_until(lambda: JOB in shown.read_text(), "the table is there")
        again = submitted.types(
            f"disttrain submit {DIGITS} --code examples/digits --set metadata.name=second"
        )
        assert again.code == 0, again.err
        commands.wait_until(lambda: "\nsecond " in shown.read_text(), "the new row is there")
    submitted.kubectl.run("delete", "dtj", "second", "--ignore-not-found")


@pytest.mark.nightly
def test_a_name_is_generated_and_each_job_has_code_of_its_own(
    submitted: Person, tmp_path: Path
) -> None:
    document = yaml.safe_load((product_images.REPOSITORY / DIGITS).read_text())
    document["metadata"] = {"generateName": "many-"}
    text = yaml.safe_dump(document)
    (tmp_path / "digits.py").write_text("# other code\n")
    made = submitted.types(f"disttrain submit - --code {tmp_path} -o name", stdin=text)
    assert made.out.startswith("disttrainjob.disttrain.dev/many-"), made.err
    names = submitted.kubectl.run("get", "configmaps", "-o", "name").split()
    assert len([name for name in names if name.startswith("configmap/digits-code-")]) == 2

    refused = submitted.types("disttrain submit - -o name", stdin=text)
    assert refused.code == 2
    assert "there is no configmap digits-code" in refused.err

    client = disttrain.Client(submitted.kubectl.namespace, kubeconfig=submitted.kubectl.kubeconfig)
    assert {job.name for job in client.list()} == {JOB, made.out.strip().rpartition("/")[2]}
    with pytest.raises(AlreadyThere, match="is in namespace"):
        client.submit(product_images.REPOSITORY / DIGITS)
    assert submitted.types("disttrain delete --all").code == 0
    assert client.list() == ()
    with pytest.raises(NotFound):
        client.get(JOB)


BAD_INPUT: Final = [
    ("disttrain get digit-small", 1, f"did you mean {JOB}?"),
    ("disttrain get pod/x", 2, "names no job: expected NAME or dtj/NAME"),
    ("disttrain get x --context nowhere", 1, "nowhere"),
    ("disttrain get x --kubeconfig /none", 1, "no access to a cluster by the kubeconfig /none"),
    (f"disttrain scale {JOB} --replicas=0", 2, "--replicas"),
    (f"disttrain resume dtj/{JOB}", 2, "is not suspended"),
    (f"disttrain logs {JOB} --pod other", 1, "has no pod other"),
    (f"disttrain logs {JOB} -f --previous", 2, "it cannot be followed"),
    ("disttrain delete", 2, "say which jobs"),
    (f"disttrain submit {DIGITS}", 1, "choose another name (--set metadata.name="),
    (f"disttrain submit {DIGITS} --code tests", 2, "lies in a folder, and a ConfigMap has none"),
    (f"disttrain submit {DIGITS} --set spec.batchSize=0", 2, "spec.batchSize"),
    (f"disttrain submit {DIGITS} --set metadata.namespace=other", 2, "metadata.namespace other"),
    (
        f"disttrain submit {DIGITS} --set metadata.name=x --set spec.task.source.configMap=none",
        2,
        "there is no configmap none",
    ),
    (
        f"disttrain submit {DIGITS} --dry-run=server --set metadata.name=x "
        "--set metadata.labels.team=a/b/c",
        2,
        "metadata.labels",
    ),
]


@pytest.mark.nightly
def test_bad_input_is_answered_with_what_is_wrong_and_what_to_do(submitted: Person) -> None:
    for line, code, words in BAD_INPUT:
        answer = submitted.types(line)
        assert answer.code == code, (line, answer)
        assert words in answer.err, (line, answer.err)
        assert "Traceback" not in answer.err, line


def test_somebody_without_rights_reads_which_verb_is_missing(
    submitted: Person, tmp_path: Path
) -> None:
    stranger = Person(submitted.kubectl, kubeconfig=token_of_a_stranger(submitted, tmp_path))
    answer = stranger.types("disttrain list")
    assert answer.code == 1
    assert "cannot list resource" in answer.err
    assert "can grant the verb 'list'" in answer.err
    no_token = yaml.safe_load(read(stranger))
    no_token["users"][0]["user"] = {"token": "nobody's"}
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump(no_token))
    answer = Person(submitted.kubectl, kubeconfig=file).types("disttrain list")
    assert answer.code == 1
    assert "does not accept the credentials" in answer.err


def token_of_a_stranger(person: Person, folder: Path) -> Path:
    """A kubeconfig whose token comes from a plugin, for an account that may do nothing."""
    person.kubectl.run("create", "serviceaccount", "stranger")
    token = person.kubectl.run("create", "token", "stranger").strip()
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token},
    }
    (folder / "credential.json").write_text(json.dumps(credential))
    content = yaml.safe_load(person.kubectl.kubeconfig.read_text())
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "cat",
        "args": [str(folder / "credential.json")],
        "interactiveMode": "Never",
    }
    content["users"][0]["user"] = {"exec": plugin}
    file = folder / "stranger.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def read(person: Person) -> str:
    return Path(person.environment()["KUBECONFIG"]).read_text()


def phase(person: Person) -> str | None:
    found = manifest(person).get("status") or {}
    value: str | None = found.get("phase")
    return value


def manifest(person: Person) -> dict[str, Any]:
    return person.kubectl.get("disttrainjob", JOB)
