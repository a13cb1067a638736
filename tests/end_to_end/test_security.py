"""Who may do what to a running job, installed as users do it: real tokens and certificates."""

import base64
import json
import os
import re
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from builders import cluster_jobs, helm, issuing, mortal
from builders.cluster_training import NAME, ClusterTraining
from builders.pretended_training import PretendedTraining
from builders.strangers import a_message, a_peer, answer, hears_nothing
from cluster import Kubectl, busybox, commands, namespaces
from cluster.hooks import Hooks
from disttrain.checkpoint import names
from disttrain.coordinator.protocol import messages, payloads
from disttrain.coordinator.protocol.commands import Checkpoint, NumberedCommand
from disttrain.coordinator.protocol.fields import NO_PROGRESS, MemberId
from disttrain.job import certificates, pod_layout
from disttrain.job.credentials import Credentials, Trust, parse
from disttrain.parameter_server.messages import Side
from disttrain.transport.header import EMPTY, Reason, Role, Verb
from disttrain_operator.cluster import credentials

pytestmark = pytest.mark.landing
RELEASE = "disttrain"
OWN_ACCOUNT = "bucket"
STEP_SECONDS = 1.0
"""The job lasts for longer than all tests."""
COMMANDED_NUMBER = 99_999_999
"""Of a checkpoint that nobody else makes."""
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - Where it lies.
JOBS = "/apis/disttrain.dev/v1alpha1/namespaces/{}/disttrainjobs"
LISTENERS = {
    Role.SHARD: ("shard", pod_layout.DATA_PORT),
    Role.COORDINATOR: ("coordinator", pod_layout.CONTROL_PORT),
}
SECRETS = "/api/v1/namespaces/{}/secrets"


@pytest.fixture(scope="module")
def training(
    hooks: Hooks, kubectl: Kubectl, operator_image: str, runtime_image: str
) -> Iterator[ClusterTraining]:
    """A job that trains, of an operator from the chart."""
    place = namespaces.make(kubectl, f"security-{os.urandom(3).hex()}")
    helm.upgrade(place, RELEASE, helm.only_in(place) | {"allowedServiceAccounts": [OWN_ACCOUNT]})
    job = ClusterTraining(hooks, place)
    job.apply(step_seconds=STEP_SECONDS, stop={"epochs": 1000})
    job.train(0.03)
    # Training begins before every replica does.
    job.wait_until(lambda: job.progress().get("liveReplicas") == 2, "both replicas train")
    yield job
    job.delete()
    helm.uninstall(place, RELEASE)
    namespaces.remove(kubectl, place.namespace)


@pytest.fixture(scope="module")
def token(training: ClusterTraining) -> str:
    """What the coordinator's pod shows to the API server."""
    (pod,) = training.pods("coordinator")
    return training.kubectl.run("exec", pod["metadata"]["name"], "--", "cat", TOKEN).strip()


@pytest.fixture(scope="module")
def trust(training: ClusterTraining) -> Trust:
    """What the job's pods are told; with it nobody is heard."""
    (data,) = [
        each["data"]
        for each in training.kubectl.items("secrets")
        if each["metadata"]["name"].startswith(f"{NAME}-trust-")
    ]
    assert set(data) == {pod_layout.LAUNCH_KEY, pod_layout.TRUST_KEY}
    assert all(b"PRIVATE KEY" not in base64.b64decode(content) for content in data.values())
    found = parse(base64.b64decode(data[pod_layout.TRUST_KEY]))
    assert isinstance(found, Trust)
    return found


def told(training: ClusterTraining, pod: str) -> dict[str, str]:
    """What somebody knows who runs code in a pod: its token and its uid."""
    token = training.kubectl.run("exec", pod, "--", "cat", str(pod_layout.TOKEN_FILE)).strip()
    return {"token": token, "uid": training.kubectl.get("pod", pod)["metadata"]["uid"]}


@contextmanager
def signer(training: ClusterTraining, trust: Trust) -> Iterator[str]:
    """The address at which the operator signs, forwarded to this machine."""
    service = f"service/{trust.signer.partition('.')[0]}"
    port = trust.signer.rpartition(":")[2]
    with forwarded(training.kubectl, service, int(port)) as address:
        yield address


def asked(address: str, trust: Trust, token: str, body: dict[str, str]) -> tuple[int, str]:
    """What the operator says to the holder of a token."""
    context = ssl.create_default_context(cadata=trust.signer_authority)
    # It is known by its name in the cluster, which this machine does not.
    context.check_hostname = False
    data, headers = json.dumps(body).encode(), {"Authorization": f"Bearer {token}"}
    url = f"https://{address}{pod_layout.SIGNING_PATH}"
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as said:  # noqa: S310
            return int(said.status), said.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture(scope="module")
def second(training: ClusterTraining, trust: Trust) -> Credentials:
    """A certificate of the second replica's pod, as code that runs there can have it."""
    pod = training.pods("replica")[1]["metadata"]["name"]
    known, request = told(training, pod), certificates.new_request()
    body = {"job": NAME, "instance": f"{known['uid']}.attack", "request": request.text}
    with signer(training, trust) as address:
        status, answer = asked(address, trust, known["token"], body)
    assert status == 200, answer
    certificate = json.loads(answer)["certificate"]
    return Credentials(certificate=certificate, key=request.key, authority=trust.authority)


def ask(kubectl: Kubectl, token: str, question: tuple[str, str, object]) -> int:
    """The API server's answer to the holder of a token."""
    method, path, patch = question
    server = credentials.of_kubeconfig(kubectl.kubeconfig)
    body = None if patch is None else json.dumps(patch).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
    request = urllib.request.Request(  # noqa: S310 - The API server of the test.
        f"{server.server}{path}", body, headers, method=method
    )
    # Without our certificate, which would speak louder than the token.
    trusted = replace(server, certificate=None).ssl_context()
    try:
        with urllib.request.urlopen(request, timeout=20, context=trusted) as said:  # noqa: S310
            return int(said.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.nightly
def test_the_coordinators_token_is_for_its_own_status_alone(
    training: ClusterTraining, token: str
) -> None:
    here = training.kubectl.namespace
    jobs = JOBS.format(here)
    other = {**training.get(), "metadata": {"name": "other"}}
    other["spec"]["suspend"] = True
    training.kubectl.apply(other)

    own_status: tuple[str, str, object] = ("PATCH", f"{jobs}/{NAME}/status", {"status": {}})
    assert ask(training.kubectl, token, own_status) == 200
    refused: dict[str, tuple[str, str, object]] = {
        "its own manifest": ("GET", f"{jobs}/{NAME}", None),
        "its own spec": ("PATCH", f"{jobs}/{NAME}", {"spec": {"suspend": True}}),
        "its own end": ("DELETE", f"{jobs}/{NAME}", None),
        "its own scale": ("PATCH", f"{jobs}/{NAME}/scale", {"spec": {"replicas": 9}}),
        "another job": ("GET", f"{jobs}/other", None),
        "another's status": ("PATCH", f"{jobs}/other/status", {"status": {}}),
        "all jobs": ("GET", jobs, None),
        "secrets here": ("GET", SECRETS.format(here), None),
        "secrets elsewhere": ("GET", SECRETS.format("kube-system"), None),
        "pods": ("GET", f"/api/v1/namespaces/{here}/pods", None),
        "a namespace's jobs": ("GET", JOBS.format("default"), None),
    }
    answers = {what: ask(training.kubectl, token, question) for what, question in refused.items()}
    assert answers == dict.fromkeys(refused, 403)
    training.kubectl.run("delete", "disttrainjob", "other")


@pytest.mark.usefixtures("small_image")
def test_a_coordinator_with_an_account_of_its_own_writes_its_status_alone(
    training: ClusterTraining,
) -> None:
    place = training.kubectl
    place.run("create", "serviceaccount", OWN_ACCOUNT)
    job = PretendedTraining(place, "own-account")
    coordinator = cluster_jobs.pretending(job.name)["spec"]["coordinator"]
    coordinator["template"]["spec"]["serviceAccountName"] = OWN_ACCOUNT
    job.start(coordinator=coordinator)
    (pod,) = job.pods("coordinator")
    assert pod["spec"]["serviceAccountName"] == OWN_ACCOUNT
    place.wait_until("Ready", f"pod/{pod['metadata']['name']}")
    token = place.run("exec", pod["metadata"]["name"], "--", "cat", TOKEN).strip()

    jobs = JOBS.format(place.namespace)
    status: object = {"status": {}}
    assert ask(place, token, ("PATCH", f"{jobs}/{job.name}/status", status)) == 200
    assert ask(place, token, ("PATCH", f"{jobs}/{NAME}/status", status)) == 403
    assert ask(place, token, ("GET", f"{jobs}/{job.name}", None)) == 403
    job.delete()


@pytest.mark.parametrize("role", ["shard", "replica"])
def test_a_training_pod_has_a_token_for_the_operator_alone_and_no_key_of_others(
    training: ClusterTraining, role: str
) -> None:
    name = training.pods(role)[0]["metadata"]["name"]
    # One for the operator alone, and none of an account's.
    listed = training.kubectl.run("exec", name, "--", "ls", "/var/run/secrets")
    assert listed.split() == [pod_layout.TOKEN_FOLDER.name]
    token = training.kubectl.run("exec", name, "--", "cat", str(pod_layout.TOKEN_FILE)).strip()
    jobs = JOBS.format(training.kubectl.namespace)
    assert ask(training.kubectl, token, ("GET", jobs, None)) == 401
    listed = training.kubectl.run("exec", name, "--", "ls", str(pod_layout.LAUNCH_FOLDER))
    assert set(listed.split()) == {pod_layout.LAUNCH_KEY, pod_layout.TRUST_KEY}


def test_the_operator_reads_no_secret_and_extends_no_right(training: ClusterTraining) -> None:
    here = training.kubectl.namespace
    (deployment,) = training.kubectl.items("deployments", f"app.kubernetes.io/instance={RELEASE}")
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]

    def may(verb: str, what: str) -> bool:
        who = f"--as=system:serviceaccount:{here}:{account}"
        question = training.kubectl.command("auth", "can-i", verb, what, who)
        return commands.succeeds(*question)

    assert may("create", "secrets")
    assert may("patch", "statefulsets.apps")
    assert may("delete", "jobs.batch")
    assert may("create", "tokenreviews.authentication.k8s.io")
    assert may("get", f"secrets/{account}-authority")
    questions = [
        ("get", "secrets"),
        ("list", "secrets"),
        ("get", "configmaps"),
        ("patch", "rolebindings.rbac.authorization.k8s.io"),
        ("create", "roles.rbac.authorization.k8s.io"),
        ("delete", "persistentvolumeclaims"),
        ("escalate", "roles.rbac.authorization.k8s.io"),
        ("bind", "roles.rbac.authorization.k8s.io"),
        ("create", "clusterroles.rbac.authorization.k8s.io"),
        ("create", "pods"),
        ("create", "pods/exec"),
    ]
    assert [question for question in questions if may(*question)] == []


def test_a_pod_gets_no_certificate_by_another_token_or_in_another_name(
    training: ClusterTraining, trust: Trust, token: str
) -> None:
    first, second = (told(training, each["metadata"]["name"]) for each in training.pods("replica"))
    place, request = training.kubectl, certificates.new_request().text
    good = {"job": NAME, "instance": f"{first['uid']}.x", "request": request}
    account = place.run("create", "token", "default", "--audience=disttrain.dev").strip()
    # Somebody who may create pods, with the labels of a job's.
    labels = training.pods("shard")[0]["metadata"]["labels"]
    place.apply(posing(labels))
    to_pod = ("--bound-object-kind=Pod", "--bound-object-name=posing")
    bound = place.run("create", "token", "default", "--audience=disttrain.dev", *to_pod).strip()
    uid = place.get("pod", "posing")["metadata"]["uid"]
    with signer(training, trust) as address:
        # Of another audience, of no pod, nonsense.
        assert asked(address, trust, token, good)[0] == 401
        assert asked(address, trust, account, good)[0] == 401
        assert asked(address, trust, "nonsense", good)[0] == 401
        # Another pod's name, another job, no pod of a job's.
        assert asked(address, trust, second["token"], good)[0] == 403
        assert asked(address, trust, first["token"], {**good, "job": "other"})[0] == 503
        own = {**good, "instance": f"{uid}.x"}
        commands.wait_until(
            lambda: asked(address, trust, bound, own)[0] == 403, "the operator has seen the pod"
        )
        place.run("delete", "pod", "posing", "--force", "--grace-period=0")
        # The API server remembers for seconds what it said of a token.
        commands.wait_until(
            lambda: asked(address, trust, bound, own)[0] in {401, 503},
            "the pod is gone",
        )


def posing(labels: dict[str, str]) -> dict[str, Any]:
    """A pod that no node ever runs."""
    rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "posing", "labels": labels},
        "spec": {
            "nodeSelector": {"nowhere": "yes"},
            "containers": [{"name": "x", "image": busybox.IMAGE, "securityContext": rights}],
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        },
    }


def asking(member: MemberId) -> bytes:
    return payloads.encode_request(
        messages.RequestWork(member=member, held=0, last_lease=0, progress=NO_PROGRESS)
    )


def replicas(training: ClusterTraining) -> list[MemberId]:
    """Of the first pod, as its log tells: the second's certificate is used."""
    pod = training.pods("replica")[0]["metadata"]["name"]
    log = training.kubectl.run("logs", pod)
    found = re.findall(r"(replica)-(\d+) trains incarnation=(\d+)", log)
    return [
        MemberId(role=Role.REPLICA, index=int(index), incarnation=int(incarnation))
        for _, index, incarnation in found[-1:]
    ]


def test_strangers_are_not_heard_and_a_replica_commands_nothing(
    training: ClusterTraining, second: Credentials
) -> None:
    volume = str(pod_layout.CHECKPOINTS_FOLDER)
    checkpoint = Checkpoint(number=COMMANDED_NUMBER, folder=volume)
    ordered = payloads.encode_command(NumberedCommand(id=9_999, order=checkpoint))
    stop = payloads.encode_request(messages.Stop(reason="by a replica", at_once=True))

    # Heard, because of its certificate, and refused, because of its role.
    with (
        door(training, Role.SHARD) as shard,
        door(training, Role.COORDINATOR) as coordinator,
        a_peer(training.uid, second) as peer,
    ):
        as_replica = a_message(Verb.CONTROL_COMMAND, Role.REPLICA, ordered)
        refusal = answer(peer, shard, Role.SHARD, as_replica)
        assert refusal.header.reason == Reason.NOT_ALLOWED
        disguised = a_message(Verb.CONTROL_COMMAND, Role.COORDINATOR, ordered)
        refusal = answer(peer, shard, Role.SHARD, disguised)
        assert b"REPLICA speaks as COORDINATOR" in bytes(refusal.payload)
        request = a_message(Verb.CONTROL_REQUEST, Role.REPLICA, stop)
        refusal = answer(peer, coordinator, Role.COORDINATOR, request)
        assert b"NotAllowed" in bytes(refusal.payload)
        # Nor does it say anything in the name of the first replica.
        for member in replicas(training):
            request = a_message(Verb.CONTROL_REQUEST, Role.REPLICA, asking(member))
            refusal = answer(peer, coordinator, Role.COORDINATOR, request)
            assert b"NotAllowed" in bytes(refusal.payload)
            assert b"does not speak for" in bytes(refusal.payload)
            hello = EMPTY._replace(
                verb=Verb.HELLO,
                role=Role.REPLICA,
                sender=member.index,
                incarnation=member.incarnation,
                count=Side.PUSH,
            )
            refusal = answer(peer, shard, Role.SHARD, (hello, b""))
            assert refusal.header.reason == Reason.NOT_ALLOWED

    own = issuing.by_role(training.uid)["replica"]
    # The true authority, so that the listeners are believed.
    forged = replace(own, authority=second.authority)
    for listener in (Role.SHARD, Role.COORDINATOR):
        for shown in (None, own, forged):
            with door(training, listener) as address:
                assert hears_nothing(training.uid, shown, address, listener)

    before = training.samples()
    training.wait_until(lambda: training.samples() > before, "training goes on")
    files = training.volume.files()
    assert [file for file in files if is_of_the_command(file, training.folder)] == []


@contextmanager
def door(job: ClusterTraining, listener: Role) -> Iterator[str]:
    """The address of the first pod that listens in a role."""
    name, port = LISTENERS[listener]
    pod = job.pods(name)[0]["metadata"]["name"]
    with forwarded(job.kubectl, f"pod/{pod}", port) as address:
        yield f"tcp://{address}"


@contextmanager
def forwarded(kubectl: Kubectl, what: str, port: int) -> Iterator[str]:
    """HOST:PORT of this machine which the API server forwards: pods have addresses of a cluster."""
    line = kubectl.command("port-forward", "--address=127.0.0.1", what, f":{port}")
    with subprocess.Popen(mortal.command(*line), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            told = re.match(r"Forwarding from (\S+)", process.stdout.readline())
            assert told is not None, f"no port of {what} is forwarded"
            yield told[1]
        finally:
            process.kill()


def is_of_the_command(file: str, job: str) -> bool:
    """Whether it lies in the folder that the command names, or where the job's own do."""
    own = (names.folder(COMMANDED_NUMBER), names.staging(COMMANDED_NUMBER))
    places = tuple(f"{job}/checkpoints/{name}" for name in own)
    return file == names.part_file(0) or file.startswith(places)
