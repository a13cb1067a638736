import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest

from builders.fake_cluster import FakeClient, World
from disttrain_operator import handlers
from disttrain_operator.cluster.answers import Event, EventType
from disttrain_operator.cluster.client import Query
from disttrain_operator.errors import Gone, Unavailable
from disttrain_operator.handlers import Follower
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.inventory import Inventory
from disttrain_operator.observed.watched import Observer
from disttrain_operator.reconcile.relist import Relister

QUERY = Query(kind=Kind.Service)
Script = list[list[Event | Exception]]


def event(kind: EventType, version: str) -> Event:
    metadata = {"name": "x", "uid": "x", "resourceVersion": version}
    return Event(kind, {"metadata": metadata}, version)


class ScriptedClient(FakeClient):
    """Each watch gives what is written for it; the one after the last never ends."""

    def __init__(self, world: World, watches: Script) -> None:
        super().__init__(world)
        self._watches = iter(watches)
        self.asked: list[str] = []
        self.waiting = asyncio.Event()

    async def watch(self, query: Query, version: str) -> AsyncGenerator[Event, None]:
        del query
        self.asked.append(version)
        script = next(self._watches, None)
        if script is None:
            self.waiting.set()
            await asyncio.Event().wait()
        for step in script or []:
            if isinstance(step, Exception):
                raise step
            yield step


def follow(watches: Script) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The versions that were watched from, and the events that were told."""
    told: list[tuple[Any, ...]] = []

    async def scenario() -> list[str]:
        client = ScriptedClient(World(), watches)
        inventory = Inventory()
        observer = Observer(inventory, frozenset())
        relister = Relister(client, inventory, observer, (), lambda _: None)
        follower = Follower(client, relister, lambda *about: told.append(about[:2]))
        task = asyncio.create_task(follower.follow(QUERY, "5"))
        async with asyncio.timeout(10):
            await client.waiting.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return client.asked

    return asyncio.run(scenario()), told


def test_a_watch_goes_on_where_the_one_before_ended() -> None:
    asked, told = follow([[event(EventType.ADDED, "6"), event(EventType.DELETED, "8")], []])

    assert asked == ["5", "8", "8"]
    assert told == [(Kind.Service, "ADDED"), (Kind.Service, "DELETED")]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Gets the seconds that would be slept."""
    noted: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        if seconds > 0:
            noted.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)
    return noted


def test_watches_that_end_at_once_are_not_opened_without_a_pause(pauses: list[float]) -> None:
    asked, _ = follow([[], [], []])

    assert asked == ["5"] * 4
    assert pauses == [handlers._PAUSE] * 3


def test_lists_that_are_too_old_again_and_again_are_read_less_and_less_often(
    pauses: list[float],
) -> None:
    asked, _ = follow([[Gone("too old")] for _ in range(7)])

    assert len(asked) == 8
    assert pauses == [*handlers.BACKOFFS, handlers.BACKOFFS[-1], handlers.BACKOFFS[-1]]


def test_a_bookmark_moves_on_and_tells_nobody() -> None:
    asked, told = follow([[event(EventType.BOOKMARK, "9")]])

    assert asked == ["5", "9"]
    assert told == []


@pytest.mark.usefixtures("pauses")
def test_what_is_too_old_is_listed_again() -> None:
    asked, _ = follow([[event(EventType.ADDED, "6"), Gone("too old")]])

    assert asked[0] == "5"
    assert asked[1] not in {"5", "6", ""}


def test_a_broken_connection_goes_on_from_the_last_event(monkeypatch: Any) -> None:
    monkeypatch.setattr(handlers, "BACKOFFS", (0.0,))
    broken: list[Event | Exception] = [event(EventType.MODIFIED, "7"), Unavailable("broken")]

    asked, told = follow([broken, [Unavailable("still")]])

    assert asked == ["5", "7", "7"]
    assert len(told) == 1


def test_a_watch_that_is_begun_no_more_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> list[bool]:
        client, loop = ScriptedClient(World(), []), asyncio.get_running_loop()
        observer = Observer(Inventory(), frozenset())
        relister = Relister(client, Inventory(), observer, (), lambda _: None)
        follower = Follower(client, relister, lambda *_: None)
        assert follower.is_alive(timedelta(minutes=10)), "none is followed yet"
        task = asyncio.create_task(follower.follow(QUERY, "5"))
        await client.waiting.wait()
        found = [follower.is_alive(timedelta(minutes=10))]
        begun = loop.time()
        monkeypatch.setattr(loop, "time", lambda: begun + 601)
        found.append(follower.is_alive(timedelta(minutes=10)))
        monkeypatch.undo()
        task.cancel()
        return found

    assert asyncio.run(scenario()) == [True, False]
