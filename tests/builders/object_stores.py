"""Places in object stores: on this machine's disk, in this process, and in a real S3 server."""

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPConnection

import pytest

from builders import free_port
from builders.checkpoints import a_layout, a_manifest, counting, put_parts
from disttrain.checkpoint import stores
from disttrain.checkpoint.reading import Checkpoint
from disttrain.job.location import Location
from disttrain.state.layout import ModelLayout

KINDS = ("folder", "disk", "memory", "s3")
_START_SECONDS = 60.0


def location(request: pytest.FixtureRequest, kind: str) -> Location:
    """An empty place of this kind; skips the test where it cannot be had.

    The S3 server is the fixture `bucket`, which is made when it is needed.
    """
    folder, name = request.getfixturevalue("tmp_path"), uuid.uuid4().hex
    if kind == "folder":
        return Location(folder / "checkpoints")
    roots: dict[str, Callable[[], str]] = {
        "disk": lambda: f"local://{folder}/store",
        "memory": lambda: "memory://tests",
        "s3": lambda: request.getfixturevalue("bucket"),
    }
    return Location(folder / "copies", f"{roots[kind]()}/{name}")


@contextmanager
def s3_server() -> Iterator[str]:
    """The uri of a bucket in an S3 server of its own, for this process and its children."""
    port = free_port.find()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (
        pytest.MonkeyPatch.context() as patch,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server,
    ):
        patch.setenv("AWS_ENDPOINT_URL", address)
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("NO_PROXY", "127.0.0.1")
        try:
            _make_bucket(port, server)
            yield "s3://bucket"
        finally:
            server.kill()


def _make_bucket(port: int, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_SECONDS
    while True:
        connection = HTTPConnection("127.0.0.1", port, timeout=_START_SECONDS)
        try:
            connection.request("PUT", "/bucket")
            assert connection.getresponse().status == HTTPStatus.OK
            return
        except OSError:
            assert server.poll() is None, "the S3 server has ended"
            assert time.monotonic() < end, "the S3 server does not answer"
            time.sleep(0.05)
        finally:
            connection.close()


def a_checkpoint(
    at: Location, number: int = 1, shards: int = 2, layout: ModelLayout | None = None
) -> Checkpoint:
    """A complete checkpoint, written as shards and coordinator do."""
    store, layout = stores.open_store(at), layout or a_layout()
    own = store.begin(number).write_coordinator(b'{"ledger": %d}' % number)
    parts = stores.open_parts(at)(store.staging(number))
    entries = put_parts(parts, layout, shards, counting(layout), version=number)
    return store.commit(a_manifest(entries, layout=layout, number=number, coordinator=own))
