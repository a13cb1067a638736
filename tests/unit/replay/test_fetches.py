"""Replayed fetches: what is given early waits, what is given twice counts once."""

from collections.abc import Callable

import numpy as np

from builders import placements
from disttrain.parameter_server.client import Version
from disttrain.parameter_server.deliveries import SenderLife
from disttrain.replay.comparing import ComparingLedger, Differences
from disttrain.replay.exchange import (
    FetchUnderWay,
    GivenChunk,
    PushUnderWay,
    ReplayedFetches,
    Turns,
)
from disttrain.replica.ledger import RECORD
from disttrain.transport.interface import Buffer
from disttrain.transport.memory import OrdinaryMemory


class AtOnce(Turns):
    """A replica that gets what it waits for at once."""

    def pause(self, wanted: Callable[[], None] = lambda: None) -> None:
        wanted()


class NothingElse:
    """Shards that have given all they will."""

    def finish_push(self, push: PushUnderWay) -> None:
        raise AssertionError(push)

    def finish_fetch(self, fetch: FetchUnderWay) -> None:
        assert not any(fetch.missing)


def fetches() -> ReplayedFetches:
    share = placements.a_share({placements.PARAMETERS: 4}, chunk_bytes=8)
    ledger = ComparingLedger(SenderLife(0, 1), np.zeros(0, RECORD), Differences())
    return ReplayedFetches(NothingElse(), [share], ledger, AtOnce(lambda: None, threads=1))


def a_chunk(number: int, values: list[float], *, fetch: int = 1, count: int = 7) -> GivenChunk:
    return GivenChunk(
        fetch=fetch,
        shard=0,
        vector=placements.PARAMETERS,
        chunk=number,
        first=2 * number,
        version=Version(1, count),
        samples=8 * count,
        content=memoryview(np.array(values, np.float32).tobytes()),
    )


def a_place() -> Buffer:
    return OrdinaryMemory().allocate("values", 16)


def values(place: Buffer) -> list[float]:
    found: list[float] = np.frombuffer(place.view, np.float32).tolist()
    return found


def test_chunks_given_before_the_replica_asks_are_there_when_it_does() -> None:
    replayed, place = fetches(), a_place()
    replayed.give(a_chunk(0, [1, 2], count=7))
    replayed.give(a_chunk(1, [3, 4], count=9))

    replayed.ask(lambda: {placements.PARAMETERS: place})
    result = replayed.wait()

    assert values(place) == [1, 2, 3, 4]
    assert result is not None
    assert result.versions == (Version(1, 7),)


def test_a_chunk_given_twice_counts_as_the_first_time() -> None:
    replayed, place = fetches(), a_place()
    replayed.ask(lambda: {placements.PARAMETERS: place})
    for chunk in (a_chunk(0, [1, 2]), a_chunk(0, [8, 8]), a_chunk(1, [3, 4])):
        replayed.give(chunk)
    replayed.wait()

    assert values(place) == [1, 2, 3, 4]


def test_a_chunk_of_a_fetch_that_is_over_is_dropped() -> None:
    replayed, place = fetches(), a_place()
    replayed.ask(lambda: {placements.PARAMETERS: place})
    for chunk in (a_chunk(0, [1, 2]), a_chunk(1, [3, 4])):
        replayed.give(chunk)
    replayed.wait()

    replayed.give(a_chunk(0, [9, 9]))

    assert values(place) == [1, 2, 3, 4]


def test_nothing_is_taken_where_the_run_adopted_nothing() -> None:
    replayed = fetches()
    replayed.ask(lambda: {placements.PARAMETERS: a_place()})

    assert replayed.take() is None
