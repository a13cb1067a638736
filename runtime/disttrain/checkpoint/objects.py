"""Blobs in an object store. The only file here that knows fsspec.

What `Blobs` promise S3, Google Cloud Storage and Azure Blob Storage promise. There is no rename, no
append and no lock. A request that was given up may still be carried out later, so nothing here
relies on its not happening: objects that must not change have names that say what is in them.
"""

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import BoundedSemaphore, Thread
from typing import Any, TypeVar

from disttrain.checkpoint.blobs import Blobs
from disttrain.checkpoint.errors import (
    AlreadyThere,
    Corrupt,
    NotWritten,
    StoreAway,
    StoreDenied,
    StoreRefused,
)
from disttrain.job import object_uri
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_Answer = TypeVar("_Answer")

_SECONDS = 20.0
"""Of one request for small objects."""
_SLOWEST = 1_000_000
"""Bytes in a second: what takes longer is given up."""
_MOST_UNANSWERED = 32
"""Requests of this process that go on after they were given up: each has a thread."""
_PLACES = BoundedSemaphore(_MOST_UNANSWERED)
_ON_DISK = ("file", "local")
_NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError")
"""Of the libraries behind fsspec, which have no class of their own for it in common."""


class Objects(Blobs):
    """Objects below one uri."""

    poll_seconds = 10.0
    """Each look is a request, which is paid for."""

    def __init__(self, filesystem: Any, root: str, uri: str) -> None:
        self.uri = uri
        self._filesystem = filesystem
        self._root = root.rstrip("/")

    def sizes(self, folder: str) -> dict[str, int]:
        found = self._read(folder, lambda: self._find(folder), _SECONDS)
        below = {name.removeprefix(f"{self._root}/"): one["size"] for name, one in found.items()}
        # An object of the folder's own name is found, too.
        below.pop(folder, None)
        return below

    def read(self, name: str, limit_bytes: int) -> bytes:
        path = self._path(name)
        content = self._read(name, lambda: self._beginning(path, limit_bytes + 1), _SECONDS)
        if len(content) > limit_bytes:
            raise Corrupt(self._said(name), f"it is longer than {limit_bytes} bytes")
        return content

    def read_all(self, sizes: Mapping[str, int]) -> dict[str, bytes]:
        paths = [self._path(name) for name in sizes]
        if not paths:
            return {}
        seconds = _SECONDS + sum(sizes.values()) / _SLOWEST
        found = self._read(next(iter(sizes)), lambda: self._filesystem.cat(paths), seconds)
        return {name: found[path] for name, path in zip(sizes, paths, strict=True)}

    def download(self, name: str, file: Path, expected_bytes: int | None = None) -> None:
        path = self._path(name)
        size = self._read(name, lambda: self._filesystem.info(path)["size"], _SECONDS)
        if expected_bytes not in {None, size}:
            raise Corrupt(self._said(name), f"it has {size} bytes, not {expected_bytes}")
        seconds = _SECONDS + size / _SLOWEST
        file.parent.mkdir(parents=True, exist_ok=True)
        self._read(name, lambda: self._filesystem.get_file(path, str(file)), seconds)

    def write(self, name: str, content: bytes) -> None:
        path = self._path(name)
        seconds = _SECONDS + len(content) / _SLOWEST
        self._write(name, lambda: self._put(path, content), seconds)

    def create(self, name: str, content: bytes) -> None:
        """A store that knows no conditional writes (`If-None-Match` of S3) writes over another."""
        path = self._path(name)
        seconds = _SECONDS + len(content) / _SLOWEST
        try:
            self._write(name, lambda: self._put_new(path, content), seconds)
        except NotWritten as error:
            if not isinstance(error.__cause__, FileExistsError):
                raise
            # The answer to an earlier attempt of the client's may be what was lost.
            if self.holds(name, content):
                return
            message = f"{self._said(name)} is there already"
            raise AlreadyThere(message) from error

    def upload(self, file: Path, name: str) -> None:
        path = self._path(name)
        seconds = _SECONDS + file.stat().st_size / _SLOWEST
        self._write(name, lambda: self._filesystem.put_file(str(file), path), seconds)

    def delete(self, names: Iterable[str]) -> frozenset[str]:
        asked = frozenset(names)
        if not asked:
            return asked
        paths = [self._path(name) for name in sorted(asked)]
        end = time.monotonic() + _SECONDS
        try:
            _within(_SECONDS, lambda: self._remove(paths, end))
        except Exception as error:
            LOG.warning("objects stay", first=paths[0], objects=len(paths), reason=_said(error))
            return asked
        return frozenset()

    def _put(self, path: str, content: bytes) -> None:
        if _on_disk(self.uri):
            with self._whole_file(path, content) as file:
                file.replace(path)
            return
        self._filesystem.pipe_file(path, content)

    def _put_new(self, path: str, content: bytes) -> None:
        if _on_disk(self.uri):
            with self._whole_file(path, content) as file:
                os.link(file, path)
            return
        self._filesystem.pipe_file(path, content, mode="create")

    @contextmanager
    def _whole_file(self, path: str, content: bytes) -> Iterator[Path]:
        """For a disk, where a file is seen before it has its content: one that gets its name last.

        It lies where nobody looks for objects.
        """
        file = Path(self._path(".new"), uuid.uuid4().hex)
        for folder in (file.parent, Path(path).parent):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            file.write_bytes(content)
            yield file
        finally:
            file.unlink(missing_ok=True)

    def _remove(self, paths: list[str], end: float) -> None:
        try:
            # One request for all, where there is such a request.
            self._filesystem.rm(paths)
        except Exception as error:
            # One that is missing keeps the others there, and not every store takes a list.
            LOG.debug("deleted one by one", objects=len(paths), reason=_said(error))
            self._remove_each(paths, end)

    def _remove_each(self, paths: list[str], end: float) -> None:
        for path in paths:
            if time.monotonic() > end:
                message = f"{path} and those after it were not tried"
                raise TimeoutError(message)
            try:
                self._filesystem.rm_file(path)
            except FileNotFoundError:
                continue

    def _beginning(self, path: str, size: int) -> bytes:
        try:
            return bytes(self._filesystem.cat_file(path, start=0, end=size))
        except OSError as error:
            # There is no range of an empty object: S3 answers with an error.
            if isinstance(error, FileNotFoundError) or self._filesystem.info(path)["size"]:
                raise
            return b""

    def _find(self, folder: str) -> dict[str, dict[str, Any]]:
        self._filesystem.invalidate_cache()
        path = self._path(folder)
        try:
            return dict(self._filesystem.find(path, detail=True))
        except FileNotFoundError:
            return {}

    def _read(self, name: str, call: Callable[[], _Answer], seconds: float) -> _Answer:
        try:
            return _within(seconds, call)
        except FileNotFoundError as error:
            raise Corrupt(self._said(name), "it is missing") from error
        except Exception as error:
            if _is_denied(error):
                raise self._denied(error) from error
            message = f"{self._said(name)} could not be read: {_said(error)}"
            raise StoreAway(message) from error

    def _write(self, name: str, call: Callable[[], object], seconds: float) -> None:
        try:
            _within(seconds, call)
        except Exception as error:
            if isinstance(error, FileNotFoundError) or _is_denied(error):
                raise self._denied(error) from error
            if isinstance(error, NotImplementedError):
                message = f"spec.checkpoint.uri: {self.uri} is of a kind that takes no objects"
                raise StoreRefused(message) from error
            message = f"{self._said(name)} could not be written: {_said(error)}"
            raise NotWritten(message) from error

    def _denied(self, error: Exception) -> StoreDenied:
        return StoreDenied(
            f"spec.checkpoint.uri: {self.uri} cannot be used: {_said(error)}; make sure that the "
            "bucket is there and that the environment has credentials that may list, read, write "
            "and delete in it"
        )

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _said(self, name: str) -> str:
        return f"{self.uri}/{name}"


def open_objects(uri: str) -> Objects:
    """The objects below a uri. Raises StoreRefused.

    StoreAway, too: some libraries ask at once who may connect, and try that again and again.
    """
    protocol = object_uri.scheme(uri)
    _require_allowed(uri, protocol)
    # Every role would start a twentieth of a second later, and most jobs have a folder.
    from fsspec.core import url_to_fs  # noqa: PLC0415

    # What another process wrote a moment ago must be found.
    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if _on_disk(uri):
        options["auto_mkdir"] = True
    try:
        filesystem, root = _within(_SECONDS, lambda: url_to_fs(uri, **options))
    except ImportError as error:
        message = (
            f"spec.checkpoint.uri: {uri} needs a package that is not installed: {error}; add it "
            "to the environment or the image of all roles"
        )
        raise StoreRefused(message) from error
    except TimeoutError as error:
        message = f"spec.checkpoint.uri: {uri} could not be opened: {_said(error)}"
        raise StoreAway(message) from error
    except Exception as error:
        message = f"spec.checkpoint.uri: {uri} cannot be opened: {_said(error)}"
        raise StoreRefused(message) from error
    return Objects(filesystem, root, uri.rstrip("/"))


def _require_allowed(uri: str, scheme: str) -> None:
    """A manifest may be somebody else's: it does not decide what this machine connects to."""
    others = os.environ.get(object_uri.OTHERS_VARIABLE, "").split(",")
    if scheme in object_uri.OPENED or (scheme and scheme in others):
        return
    message = (
        f"spec.checkpoint.uri: {uri} is opened only where {object_uri.OTHERS_VARIABLE}={scheme} is "
        f"set in the environment; without it there are {', '.join(sorted(object_uri.OPENED))}"
    )
    raise StoreRefused(message)


def _on_disk(uri: str) -> bool:
    return object_uri.scheme(uri) in _ON_DISK


def _is_denied(error: Exception) -> bool:
    return isinstance(error, PermissionError) or type(error).__name__ in _NO_CREDENTIALS


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _within(seconds: float, call: Callable[[], _Answer]) -> _Answer:
    """What the call gives; TimeoutError when it takes longer, while it goes on."""
    if not _PLACES.acquire(timeout=seconds):
        message = f"{_MOST_UNANSWERED} earlier requests still have no answer"
        raise TimeoutError(message)
    outcome: Future[_Answer] = Future()

    def run() -> None:
        # The place is free before there is an answer: whoever has it may fork.
        try:
            answer = call()
        except BaseException as error:
            _PLACES.release()
            outcome.set_exception(error)
        else:
            _PLACES.release()
            outcome.set_result(answer)

    Thread(target=run, name="object-store", daemon=True).start()
    try:
        return outcome.result(seconds)
    except TimeoutError as error:
        message = str(error) or f"no answer within {seconds:.0f} s"
        raise TimeoutError(message) from error
