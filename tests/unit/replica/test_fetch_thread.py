"""When a fetch begins that was asked for: at its time, or when somebody waits for it."""

import threading
from collections.abc import Iterator, Mapping, Sequence

import pytest

from disttrain.parameter_server.client import FetchClient, FetchResult
from disttrain.replica.cancellation import Cancellation, Cancelled
from disttrain.replica.client_threads import FetchThread
from disttrain.state.fragments import WHOLE, Fragment
from disttrain.state.vector import Vector
from disttrain.transport.interface import Buffer

FETCHED = FetchResult(versions=(), samples=7, buffers_changed=False)
LONG_SECONDS = 3600.0


class Shards(FetchClient):
    """Answers each fetch at once; says when it was asked."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.closed = threading.Event()

    @property
    def shards(self) -> Sequence[int]:
        return (0,)

    def fetch(
        self, into: Mapping[Vector, Buffer], fragment: Fragment = WHOLE, *, steps: int = 0
    ) -> FetchResult:
        del into, fragment, steps
        self.asked.set()
        return FETCHED

    def stop(self) -> None:
        pass

    def close(self) -> None:
        self.closed.set()


class HeldShards(Shards):
    """Answers only when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()

    def fetch(
        self, into: Mapping[Vector, Buffer], fragment: Fragment = WHOLE, *, steps: int = 0
    ) -> FetchResult:
        fetched = super().fetch(into, fragment, steps=steps)
        assert self.answers.wait(60)
        return fetched


@pytest.fixture
def shards() -> Shards:
    return Shards()


@pytest.fixture
def fetches(shards: Shards) -> Iterator[FetchThread]:
    thread = FetchThread(shards, Cancellation())
    yield thread
    thread.close(10)
    assert shards.closed.is_set()


def ask(fetches: FetchThread, after_seconds: float | None) -> None:
    fetches.ask(dict, lambda: None, after_seconds)


@pytest.mark.parametrize("after_seconds", [None, LONG_SECONDS])
def test_a_fetch_begins_when_it_is_waited_for(
    shards: Shards, fetches: FetchThread, after_seconds: float | None
) -> None:
    ask(fetches, after_seconds)
    assert fetches.take() is None
    assert not shards.asked.is_set()
    assert fetches.waited_seconds == 0

    assert fetches.wait() == FETCHED


def test_a_fetch_begins_when_somebody_waits_a_little(shards: Shards, fetches: FetchThread) -> None:
    ask(fetches, LONG_SECONDS)

    assert fetches.take(within_seconds=60) == FETCHED
    assert shards.asked.is_set()
    assert fetches.waited_seconds > 0


def test_waiting_a_little_ends_when_the_process_is_to_end() -> None:
    cancellation, held = Cancellation(), HeldShards()
    fetches = FetchThread(held, cancellation)
    ask(fetches, 0.0)
    assert held.asked.wait(60)
    cancellation.cancel()

    with pytest.raises(Cancelled):
        fetches.take(within_seconds=LONG_SECONDS)

    held.answers.set()
    fetches.close(10)


def test_the_next_fetch_waits_for_its_own_time(shards: Shards, fetches: FetchThread) -> None:
    ask(fetches, None)
    assert fetches.wait() == FETCHED
    shards.asked.clear()

    ask(fetches, None)

    assert fetches.take() is None
    assert not shards.asked.is_set()


def test_a_fetch_that_is_due_begins_though_nobody_waits(
    shards: Shards, fetches: FetchThread
) -> None:
    ask(fetches, 0.0)

    assert shards.asked.wait(60)
    assert fetches.take(within_seconds=60) == FETCHED
    assert fetches.take() is None


def test_a_fetch_that_is_not_due_does_not_begin_at_the_end(
    shards: Shards, fetches: FetchThread
) -> None:
    ask(fetches, None)

    fetches.close(10)

    assert shards.closed.wait(60)
    assert not shards.asked.is_set()


def test_what_is_dropped_does_not_begin_and_the_next_fetch_does(
    shards: Shards, fetches: FetchThread
) -> None:
    ask(fetches, None)

    fetches.drop()

    assert not shards.asked.is_set()
    assert fetches.wait() is None
    ask(fetches, None)
    assert fetches.wait() == FETCHED


def test_what_is_dropped_when_it_has_begun_is_not_taken(
    shards: Shards, fetches: FetchThread
) -> None:
    ask(fetches, 0.0)
    assert shards.asked.wait(60)

    fetches.drop()
    ask(fetches, None)

    assert fetches.take() is None
