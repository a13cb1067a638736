"""What becomes of a store's errors. The rest is in contract/test_checkpoint_stores.py."""

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fsspec.registry import known_implementations

from disttrain.checkpoint import objects
from disttrain.checkpoint.errors import (
    CheckpointError,
    Corrupt,
    NotWritten,
    StoreAway,
    StoreDenied,
    StoreRefused,
)
from disttrain.checkpoint.objects import Objects


class NoCredentialsError(Exception):
    """As botocore calls it."""


class Failing:
    """A file system whose every request ends in this way."""

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self._end()


def objects_that_raise(error: Exception) -> Objects:
    def end() -> None:
        raise error

    return Objects(Failing(end), "bucket/job", "s3://bucket/job")


Use = Callable[[Objects], object]


def read(found: Objects) -> object:
    return found.read("a", 10)


def sizes(found: Objects) -> object:
    return found.sizes("data")


def write(found: Objects) -> object:
    found.write("a", b"content")
    return None


@pytest.mark.parametrize(
    ("use", "error", "expected"),
    [
        (read, PermissionError("Access Denied"), StoreDenied),
        (sizes, PermissionError("Access Denied"), StoreDenied),
        (write, PermissionError("Access Denied"), StoreDenied),
        (write, NoCredentialsError(), StoreDenied),
        (write, FileNotFoundError("no such bucket"), StoreDenied),
        (read, FileNotFoundError("a"), Corrupt),
        (read, OSError("reset"), StoreAway),
        (sizes, OSError("reset"), StoreAway),
        (write, OSError("reset"), NotWritten),
        (write, RuntimeError("loop is closed"), NotWritten),
        (write, NotImplementedError(), StoreRefused),
    ],
)
def test_errors_say_whether_to_try_again(
    use: Use, error: Exception, expected: type[CheckpointError]
) -> None:
    with pytest.raises(expected, match="s3://bucket/job"):
        use(objects_that_raise(error))


def test_who_is_not_let_in_learns_the_field_and_the_remedy() -> None:
    with pytest.raises(StoreDenied, match=r"spec\.checkpoint\.uri: .*Access Denied; make sure"):
        write(objects_that_raise(PermissionError("Access Denied")))


@contextmanager
def taken_places(number: int) -> Iterator[None]:
    """So many places of requests are taken; on leaving, until all requests have ended."""
    for _ in range(number):
        assert objects._PLACES.acquire(timeout=60)
    yield
    for _ in range(number, objects._MOST_UNANSWERED):
        assert objects._PLACES.acquire(timeout=60)
    for _ in range(objects._MOST_UNANSWERED):
        objects._PLACES.release()


def test_a_store_without_an_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_SECONDS", 0.05)
    over = threading.Event()
    with taken_places(0):
        with pytest.raises(StoreAway, match="no answer within"):
            sizes(Objects(Failing(lambda: over.wait(60)), "bucket", "s3://bucket"))
        over.set()


def test_a_store_without_answers_gets_no_more_than_so_many_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(objects, "_SECONDS", 0.05)
    over, asked = threading.Event(), threading.Semaphore(0)

    def end() -> None:
        asked.release()
        over.wait(60)

    found = Objects(Failing(end), "bucket", "s3://bucket")
    with taken_places(objects._MOST_UNANSWERED - 1):
        for _ in range(2):
            with pytest.raises(NotWritten):
                write(found)
        over.set()
    assert asked.acquire(blocking=False)
    assert not asked.acquire(blocking=False)


class Refusing:
    """A file system that deletes no lists."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def rm(self, paths: list[str]) -> None:
        raise NotImplementedError(paths)

    def rm_file(self, path: str) -> None:
        if path.endswith("gone"):
            raise FileNotFoundError(path)
        self.deleted.append(path)


def test_what_cannot_be_deleted_at_once_is_deleted_one_by_one() -> None:
    files = Refusing()
    Objects(files, "bucket", "s3://bucket").delete(["a", "gone", "b"])
    assert files.deleted == ["bucket/a", "bucket/b"]


def test_a_deletion_that_fails_stops_nobody() -> None:
    assert objects_that_raise(OSError("reset")).delete(["a", "b"]) == {"a", "b"}


def test_many_objects_are_read_and_deleted_together(tmp_path: Path) -> None:
    found = objects.open_objects(f"local://{tmp_path}")
    for name in ("d/a", "d/b", "d/c"):
        found.write(name, name.encode())
    there = found.sizes("d")
    assert found.read_all(there) == {name: name.encode() for name in there}
    assert found.read_all({}) == {}
    assert found.delete(["d/a", "d/none", "d/c"]) == frozenset()
    assert set(found.sizes("d")) == {"d/b"}


def test_more_than_the_limit_is_not_believed(tmp_path: Path) -> None:
    found = objects.open_objects(f"local://{tmp_path}")
    found.write("a", b"0123456789")
    assert found.read("a", 10) == b"0123456789"
    with pytest.raises(Corrupt, match="longer than 9 bytes"):
        found.read("a", 9)
    with pytest.raises(Corrupt, match="it has 10 bytes, not 11"):
        found.download("a", tmp_path / "b", 11)


class Ranges:
    """A file system that gives no range of a file without bytes, as S3 does."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        if not self._content:
            raise OSError(errno.EINVAL, path)
        return self._content[start:end]

    def info(self, path: str) -> dict[str, object]:
        return {"name": path, "size": len(self._content)}


@pytest.mark.parametrize("content", [b"", b"content"])
def test_an_empty_object_is_read_as_any_other(content: bytes) -> None:
    assert Objects(Ranges(content), "bucket", "s3://bucket").read("a", 10) == content


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {"class": "no_such_package.Files", "err": "install no_such"}
    monkeypatch.setitem(known_implementations, "absent", absent)
    monkeypatch.setenv("DISTTRAIN_OBJECT_STORES", "absent")
    with pytest.raises(StoreRefused, match=r"spec\.checkpoint\.uri: absent://b .*install no_such"):
        objects.open_objects("absent://b")


@pytest.mark.parametrize("scheme", ["http", "ftp", "sftp", "github", "nosuch", "S3", ""])
def test_only_known_stores_are_opened_unless_the_environment_names_others(scheme: str) -> None:
    said = rf"{scheme}://b is opened only where DISTTRAIN_OBJECT_STORES={scheme} is set"
    with pytest.raises(StoreRefused, match=said):
        objects.open_objects(f"{scheme}://b")


def test_a_store_that_is_not_opened_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_SECONDS", 0.05)
    over = threading.Event()
    with taken_places(0):
        monkeypatch.setattr("fsspec.core.url_to_fs", lambda _uri, **_: over.wait(60))
        with pytest.raises(StoreAway, match="gs://b could not be opened: no answer within"):
            objects.open_objects("gs://b")
        over.set()


def test_an_unknown_protocol_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTTRAIN_OBJECT_STORES", "oss,nosuch")
    with pytest.raises(StoreRefused, match="nosuch://b cannot be opened: Protocol not known"):
        objects.open_objects("nosuch://b")
