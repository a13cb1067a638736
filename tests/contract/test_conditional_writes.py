"""An object that must not be written over is not: on a disk, in memory, and in a real S3 server."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from builders import object_stores
from builders.flaky_objects import FlakyObjects
from disttrain.checkpoint import objects
from disttrain.checkpoint.errors import AlreadyThere
from disttrain.coordinator.journal import object_journal
from disttrain.coordinator.journal.object_journal import ObjectJournal
from disttrain.coordinator.journal.state import State


@pytest.fixture(name="store", params=[kind for kind in object_stores.KINDS if kind != "folder"])
def _store(request: pytest.FixtureRequest) -> objects.Objects:
    return objects.open_objects(object_stores.location(request, request.param).uri)


def test_who_comes_second_creates_nothing(store: objects.Objects) -> None:
    store.create("a/b", b"first")
    with pytest.raises(AlreadyThere, match="a/b is there already"):
        store.create("a/b", b"second")
    assert store.read("a/b", 100) == b"first"


def test_an_object_without_content_is_one_too(store: objects.Objects) -> None:
    store.create("a/empty", b"")
    with pytest.raises(AlreadyThere):
        store.create("a/empty", b"more")
    assert store.sizes("a") == {"a/empty": 0}


def test_an_object_of_the_folders_own_name_is_not_in_it(store: objects.Objects) -> None:
    store.create("a", b"somebody else's")
    assert store.sizes("a") == {}


def test_said_again_after_a_lost_answer_it_is_no_other(store: objects.Objects) -> None:
    store.create("a/b", b"mine")
    store.create("a/b", b"mine")


@pytest.mark.parametrize("put", [objects.Objects.write, objects.Objects.create])
def test_on_a_disk_what_is_listed_has_its_content(
    request: pytest.FixtureRequest, put: Callable[[objects.Objects, str, bytes], None]
) -> None:
    """S3 promises it; the server that stands for it here does not keep that."""
    store = objects.open_objects(object_stores.location(request, "disk").uri)
    content, seen = b"c" * (8 << 20), set[int]()

    def put_all() -> None:
        for number in range(10):
            put(store, f"a/{number}", content)

    with ThreadPoolExecutor(1) as other:
        written = other.submit(put_all)
        while not written.done():
            seen.update(store.sizes("a").values())
    written.result()

    assert seen <= {len(content)}


def test_a_store_without_conditional_writes_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    store = FlakyObjects(is_conditional=False)
    kept = ObjectJournal(store)
    kept.claim("place")
    kept.begin(State())

    assert "knows no conditional writes" in caplog.text
    assert object_journal.replay(store) is not None
