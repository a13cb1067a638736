"""Sending the status to an API server, which is here a small HTTPS server of the test's own."""

import itertools
import json
import random
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from builders import tls
from builders.launches import wait_until
from disttrain.coordinator.process.cluster_status import ApiServer, ClusterStatus, StatusRefused
from disttrain.coordinator.status.cluster_status import JobObject, Json, Patches
from disttrain.launch.config import ClusterAccess

JOB = JobObject(name="digits", namespace="team", uid="u-1")
PATH = (
    "/apis/disttrain.dev/v1alpha1/namespaces/team/disttrainjobs/digits/status"
    "?fieldManager=disttrain-coordinator&force=true"
)

pytestmark = pytest.mark.skipif(tls.OPENSSL is None, reason="needs openssl to make a certificate")


class Asked(NamedTuple):
    """A request as the server saw it."""

    path: str
    token: str
    kind: str
    content: Json


class FakeApi:
    """Answers with `status`, `missing` bytes less than it says; remembers what was asked."""

    def __init__(self, folder: Path) -> None:
        self.status = 200
        self.missing = 0
        self.asked: list[Asked] = []
        self.folder = folder
        context = tls.certify(folder)
        (folder / "token").write_text("first\n")
        self.server = HTTPServer(("127.0.0.1", 0), self._handler())
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        access = ClusterAccess(
            server=f"https://127.0.0.1:{self.server.server_port}", account_folder=folder
        )
        self.client = ApiServer(access, JOB)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_PATCH(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                token, kind = self.headers["Authorization"], self.headers["Content-Type"]
                api.asked.append(Asked(self.path, token, kind, json.loads(content)))
                answer = b'{"message": "because"}'
                self.send_response(api.status)
                self.send_header("Content-Length", str(len(answer) + api.missing))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        return Handler


@pytest.fixture
def api(tmp_path: Path) -> Iterator[FakeApi]:
    fake = FakeApi(tmp_path)
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


def test_a_patch_is_a_server_side_apply_of_the_status(api: FakeApi) -> None:
    api.client.apply(b'{"status": {}}')
    api.folder.joinpath("token").write_text("second")
    api.client.apply(b'{"status": {}}')
    assert [asked.path for asked in api.asked] == [PATH, PATH]
    assert [asked.token for asked in api.asked] == ["Bearer first", "Bearer second"]
    assert api.asked[0].kind == "application/apply-patch+yaml"


def test_a_refusal_says_why(api: FakeApi) -> None:
    api.status = 403
    with pytest.raises(StatusRefused, match=r"403 .*because"):
        api.client.apply(b"{}")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_is_busy_refuses_nothing(api: FakeApi, status: int) -> None:
    api.status = status
    with pytest.raises(OSError, match=f"{status} .*because") as raised:
        api.client.apply(b"{}")
    assert not isinstance(raised.value, StatusRefused)


def test_a_server_that_nobody_vouches_for_gets_no_token(api: FakeApi, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    tls.certify(other)
    shutil.copy(other / "ca.crt", api.folder / "ca.crt")
    with pytest.raises(OSError, match="certificate verify failed"):
        api.client.apply(b"{}")
    assert not api.asked


def test_an_account_without_a_token_is_a_failure_like_any_other(api: FakeApi) -> None:
    (api.folder / "token").unlink()
    with pytest.raises(OSError, match="token"):
        api.client.apply(b"{}")


def test_an_answer_that_breaks_off_is_a_failure_like_any_other(api: FakeApi) -> None:
    api.missing = 100
    with pytest.raises(OSError, match="IncompleteRead"):
        api.client.apply(b"{}")


def test_a_token_that_no_header_can_hold_is_a_failure_like_any_other(api: FakeApi) -> None:
    (api.folder / "token").write_bytes(b"\xff\xfe")
    with pytest.raises(OSError, match="the request failed"):
        api.client.apply(b"{}")


def some_fields(samples: int) -> Json:
    return {"training": {"samples": samples}, "parameterServer": {}}


def test_the_last_words_are_sent_whatever_the_time(api: FakeApi) -> None:
    status = ClusterStatus(api.client.apply, Patches(JOB, random.Random(1)))
    status.offer(lambda: some_fields(1), 0.0)
    status.offer(lambda: some_fields(2), 0.1)
    status.close(some_fields(3), 0.2)
    assert [asked.content["status"]["training"]["samples"] for asked in api.asked] == [1, 3]


def test_a_server_that_hangs_or_refuses_holds_up_nobody() -> None:
    goes_on = threading.Event()

    def hang(_: bytes) -> None:
        assert goes_on.wait(20)
        message = "no such job"
        raise StatusRefused(message)

    status = ClusterStatus(hang, Patches(JOB, random.Random(1)))
    for now in range(0, 1000, 20):
        status.offer(lambda: some_fields(1), float(now))
    goes_on.set()
    status.close(some_fields(1), 1000.0)


@pytest.mark.parametrize(
    ("error", "attempts"), [(TimeoutError("too late"), 3), (StatusRefused("it is gone"), 1)]
)
def test_the_last_words_are_sent_again_unless_they_are_refused(
    error: OSError, attempts: int
) -> None:
    sent: list[bytes] = []

    def send(content: bytes) -> None:
        sent.append(content)
        if len(sent) < 3:
            raise error

    ClusterStatus(send, Patches(JOB, random.Random(1))).close(some_fields(1), 0.0)

    assert len(sent) == attempts


def test_an_error_that_nobody_expected_ends_no_coordinator() -> None:
    sent: list[bytes] = []

    def send(content: bytes) -> None:
        sent.append(content)
        if len(sent) == 1:
            raise MemoryError

    status = ClusterStatus(send, Patches(JOB, random.Random(1)))
    now = itertools.count(0.0, 1000.0)

    def is_sent_again() -> bool:
        status.offer(lambda: some_fields(1), next(now))
        return len(sent) == 2

    wait_until(is_sent_again, "the status is sent again")
    status.close(some_fields(2), next(now))

    assert len(sent) == 3
