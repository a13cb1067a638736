"""A pod asks the operator for its certificate: both sides, over TLS, on a cluster in memory."""

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from builders.signing_port import HOST, KEY, SigningPort
from builders.transports import PATIENCE
from disttrain.job import certificates, identity, pod_layout
from disttrain.job.credentials import Credentials
from disttrain.job.identity import Identity
from disttrain.launch import pod_credentials
from disttrain.launch.pod_credentials import Applicant, NotSigned
from disttrain.transport import tls
from disttrain_operator.kinds import Kind
from disttrain_operator.signing.authorities import Authorities
from disttrain_operator.telemetry import metrics


@pytest.fixture
def port() -> Iterator[SigningPort]:
    made = SigningPort()
    with made.serving():
        yield made


def who(found: Credentials) -> Identity | None:
    """What a peer would read in the certificate, once it has believed it."""
    server, client = tls.server_context(found), tls.client_context(found)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = server.wrap_bio(incoming, outgoing, server_side=True)
    there = client.wrap_bio(outgoing, incoming)
    for _ in range(3):
        for side in (there, here):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return identity.of_certificate(here.getpeercert() or {})


def test_each_pod_gets_its_own_certificate(port: SigningPort, tmp_path: Path) -> None:
    expected: dict[str, list[int | None]] = {
        "coordinator": [0],
        "shard": [0, 1],
        "replica": [None, None],
    }
    for role, groups in expected.items():
        for pod, group in zip(port.pods(role), groups, strict=True):
            found = port.applicant(pod, tmp_path).ask()
            instance = f"{pod['metadata']['uid']}.1"
            place = "" if group is not None else pod["metadata"]["name"]
            assert who(found) == Identity(port.uid, role, group, 0, instance, place)
    signed = metrics.CERTIFICATES_SIGNED.labels("replica")._value.get()
    assert signed >= 2


def refusal(applicant: Applicant) -> str:
    with pytest.raises(NotSigned) as raised:
        applicant.ask()
    return str(raised.value)


def test_a_pod_gets_no_certificate_of_another(port: SigningPort, tmp_path: Path) -> None:
    one, two = port.pods("replica")
    other = f"{two['metadata']['uid']}.1"
    assert "403" in refusal(port.applicant(one, tmp_path, other))
    # The token says who asks, not the name of the job.
    stranger = replace(port.applicant(one, tmp_path), job="another")
    assert "503" in refusal(stranger)
    events = [body for (kind, *_), body in port.world.objects.items() if kind is Kind.Event]
    (told,) = [each for each in events if each["reason"] == "CertificateRefused"]
    assert one["metadata"]["name"] in told["message"]
    assert told["type"] == "Warning"


def test_a_pod_that_is_gone_gets_none(port: SigningPort, tmp_path: Path) -> None:
    pod = port.pods("replica")[0]
    applicant = port.applicant(pod, tmp_path)
    metadata = pod["metadata"]
    port.world.delete((Kind.Pod, metadata["namespace"], metadata["name"]))
    assert "401" in refusal(applicant)


def test_a_pod_with_our_labels_that_nobody_of_ours_has_made_gets_none(
    port: SigningPort, tmp_path: Path
) -> None:
    pod = port.pods("replica")[0]
    labels = pod["metadata"]["labels"]
    metadata = {"name": "counting-shard-7", "namespace": KEY.namespace, "labels": labels}
    posing = port.world.create(Kind.Pod, {"metadata": metadata, "spec": {}, "status": {}})
    applicant = port.applicant(posing, tmp_path)
    assert "503" in refusal(applicant)
    port.operator.hear()
    assert "403" in refusal(applicant)


def test_a_pod_that_is_not_known_yet_asks_again_until_it_is(
    port: SigningPort, tmp_path: Path
) -> None:
    before = port.pods("replica")[0]["metadata"]
    port.world.delete((Kind.Pod, before["namespace"], before["name"]))
    port.world.run_controllers()
    known = port.operator.inventory.at(KEY).pods
    (pod,) = [each for each in port.pods("replica") if each["metadata"]["name"] not in known]
    asked: list[float] = []

    def pause(seconds: float) -> None:
        asked.append(seconds)
        if len(asked) == 3:
            port.operator.hear()

    found = port.applicant(pod, tmp_path).ask_until_signed(pause)
    assert len(asked) == 3
    assert who(found) is not None


def test_a_pod_waits_for_an_operator_that_is_away(tmp_path: Path) -> None:
    made = SigningPort()
    with made.serving():
        pass
    applicant = made.applicant(made.pods("coordinator")[0], tmp_path)
    assert "no answer" in refusal(applicant)
    with ExitStack() as stack:
        found = applicant.ask_until_signed(lambda _: stack.enter_context(made.serving()))
    assert who(found) is not None


def test_another_operator_or_another_master_secret_is_told_in_words(
    port: SigningPort, tmp_path: Path
) -> None:
    applicant = port.applicant(port.pods("coordinator")[0], tmp_path)
    other = Authorities(bytes(31) + b"1", timedelta(hours=1)).trust(port.uid, "x:1")
    stranger = replace(applicant.trust, signer_authority=other.signer_authority)
    changed = replace(applicant.trust, authority=other.authority)
    (secret,) = [key[2] for key in port.world.objects if key[0] is Kind.Secret]
    for trust in (stranger, changed):
        words = refusal(replace(applicant, trust=trust))
        assert "its own Secret was replaced" in words
        assert f"delete Secret {secret} in the job's namespace" in words


def test_certificates_are_renewed_at_two_thirds_of_their_lifetime(
    port: SigningPort, tmp_path: Path
) -> None:
    applicant = port.applicant(port.pods("coordinator")[0], tmp_path)
    first = applicant.ask()
    asked: list[float] = []

    def pause(seconds: float) -> None:
        asked.append(seconds)
        if len(asked) > 1:
            threading.Event().wait()

    kept = pod_credentials.keep_renewed(first, applicant, pause)
    end = time.monotonic() + 6 * PATIENCE
    while kept.current is first and time.monotonic() < end:
        time.sleep(0.02)
    assert who(kept.current) == who(first)
    assert kept.current.key != first.key
    assert 16 * 0.9 <= asked[0] / 3600 <= 16


def ask(port: SigningPort, token: str | None, body: bytes, path: str = "") -> tuple[int, str]:
    context = ssl.create_default_context(cadata=port.trust.signer_authority)
    connection = http.client.HTTPSConnection(HOST, port.port, timeout=PATIENCE, context=context)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        connection.request("POST", path or pod_layout.SIGNING_PATH, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_what_is_no_question_is_answered_with_what_is_wrong(port: SigningPort) -> None:
    good = {"job": KEY.name, "instance": "a", "request": certificates.new_request().text}
    assert ask(port, None, json.dumps(good).encode())[0] == 401
    for body in (b"", b"[]", b"x" * 100, b"[" * 10_000, json.dumps({"job": "a"}).encode()):
        assert ask(port, "t", body)[0] == 400
    assert ask(port, "t", b"x" * 100_000)[0] == 413
    assert ask(port, "t", b"{}", "/metrics")[0] == 404
    metadata = port.pods("replica")[0]["metadata"]
    token = f"{metadata['namespace']}/{metadata['name']}/{metadata['uid']}"
    asked: dict[str, Any] = {**good, "instance": f"{metadata['uid']}.1", "request": "no PEM"}
    status, words = ask(port, token, json.dumps(asked).encode())
    assert (status, "request cannot be read" in words) == (400, True)


def test_strangers_hold_few_connections_and_pods_are_answered_all_the_same(
    port: SigningPort, tmp_path: Path
) -> None:
    silent = [socket.create_connection((HOST, port.port)) for _ in range(150)]
    try:
        applicant = port.applicant(port.pods("coordinator")[0], tmp_path)
        began = time.monotonic()
        applicant.ask_until_signed()
        # Without a limit of ours each would hold its place for a minute.
        assert time.monotonic() - began < 45.0
    finally:
        for each in silent:
            each.close()
