"""A replayed shard serves replicas as the run's did: by its update rule, in its log's order."""

from collections.abc import Iterator
from typing import cast

import numpy as np
import pytest

from builders import placements
from builders.jobs import a_job
from disttrain.audit.evidence import Incarnation
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.parameter_server.client import FetchResult, Push, PushResult, Version
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.ledger import RECORD, Kind
from disttrain.replay import recording
from disttrain.replay.comparing import RecordContradicted
from disttrain.replay.recording import Recording
from disttrain.replay.replayed_run import ReplayedRun
from disttrain.replay.replica import ReplayedReplica
from disttrain.replay.shard import ReplayedShard
from disttrain.replay.wires import LOOK_AGAIN_SECONDS, Wires
from disttrain.state.placement import TRAINED
from disttrain.transport.interface import Buffer
from disttrain.transport.memory import OrdinaryMemory
from disttrain.transport.virtual_time import Bell

ELEMENTS = 4
CHUNK_ELEMENTS = 2
LONG_SECONDS = 5.0
"""A client that hears nothing for so long makes its connection anew."""
RULE = "{momentum: {learningRate: 1.0, momentum: 0.5}}"
FIRST, SECOND = SenderIncarnation(0, 1), SenderIncarnation(1, 1)


class Recorded:
    """As much of a recording as a shard asks for."""

    spec = a_job(f"spec.strategy.downpour={{optimizer: {RULE}, staleness: {{predict: {{}}}}}}").spec
    data = DataLedger(samples=8, portion_size=8, batch_size=2)
    chunk_bytes = 4 * CHUNK_ELEMENTS
    shard_threads = 1


class Replay:
    """One shard and the replicas that talk to it, each in a thread of its own."""

    def __init__(self) -> None:
        kept = ("velocity", "prediction")
        placement = placements.a_placement({placements.PARAMETERS: ELEMENTS}, 1, kept)
        self.wires = Wires(placement, Recorded.chunk_bytes, [1])
        log = Incarnation(process="shard-0", index=0, incarnation=1, records=np.zeros(0, RECORD))
        self.shard = ReplayedShard(cast("Recording", Recorded()), log, placement, self.wires)
        self.shard.state.is_initialised = True
        for incarnation in (FIRST, SECOND):
            self.shard.shard.admit(incarnation)
        self.place = a_buffer(0.0)
        self.answers: list[PushResult] = []
        self.fetched: list[FetchResult] = []

    def push(self, incarnation: SenderIncarnation) -> None:
        push = Push(sequence=1, gradient=a_buffer(1.0), versions=[Version(1, 0)])
        client = self.wires.sides(incarnation).push
        self.wires.time.start(lambda: self.answers.extend(client.push(push)))

    def fetch(self, incarnation: SenderIncarnation) -> None:
        client = self.wires.sides(incarnation).fetch
        into = {placements.PARAMETERS.beside("prediction"): self.place}
        self.wires.time.start(lambda: self.fetched.append(client.fetch(into)))

    def follow(self, *records: np.void) -> None:
        for record in records:
            self.shard.serve(self.shard.wait_for(record), record)
        self.wires.time.wait(1.0)

    def values(self) -> list[float]:
        found: list[float] = self.shard.values.tensor(placements.PARAMETERS).tolist()
        return found


@pytest.fixture
def replay() -> Iterator[Replay]:
    made = Replay()
    yield made
    made.wires.time.close()


def a_buffer(value: float) -> Buffer:
    buffer = OrdinaryMemory().allocate("values", 4 * ELEMENTS)
    np.frombuffer(buffer.view, np.float32)[:] = value
    return buffer


def a_record(
    kind: Kind, incarnation: SenderIncarnation, chunk: int, vector: int = TRAINED
) -> np.void:
    records = np.zeros(1, RECORD)
    records["kind"], records["vector"], records["chunk"] = kind, vector, chunk
    records["sender"], records["incarnation"] = incarnation
    records["sequence"], records["live_replicas"] = 1, 3
    records["chunks"] = 0 if kind == Kind.CHUNK_FETCHED else ELEMENTS // CHUNK_ELEMENTS
    record: np.void = records[0]
    return record


def applied(incarnation: SenderIncarnation, chunk: int) -> np.void:
    return a_record(Kind.CHUNK_APPLIED, incarnation, chunk)


def given(incarnation: SenderIncarnation, chunk: int) -> np.void:
    return a_record(Kind.CHUNK_FETCHED, incarnation, chunk, vector=3)


def test_chunks_are_given_as_the_update_rule_serves_them(replay: Replay) -> None:
    replay.push(FIRST)
    replay.follow(applied(FIRST, 0), applied(FIRST, 1))
    replay.fetch(FIRST)

    replay.follow(given(FIRST, 0), given(FIRST, 1))

    # The velocity is -1, and the sender's mean staleness 0.
    assert np.frombuffer(replay.place.view, np.float32).tolist() == [-1.5] * ELEMENTS
    assert replay.values() == [-1.0] * ELEMENTS
    assert replay.fetched[0].versions == (Version(1, 1),)
    assert replay.shard.state.live_replicas == 3


def test_what_replicas_ask_for_at_once_is_done_in_the_order_of_the_log(replay: Replay) -> None:
    for incarnation in (FIRST, SECOND):
        replay.push(incarnation)

    replay.follow(
        *(applied(incarnation, chunk) for chunk in (0, 1) for incarnation in (SECOND, FIRST))
    )

    versions = [
        replay.shard.state.deliveries.of(*incarnation).version for incarnation in (FIRST, SECOND)
    ]
    assert versions == [2, 1]


def test_the_log_comes_between_two_chunks_that_are_asked_for_together(replay: Replay) -> None:
    replay.fetch(FIRST)
    replay.push(SECOND)

    replay.follow(given(FIRST, 0), applied(SECOND, 0), applied(SECOND, 1), given(FIRST, 1))

    given_values = np.frombuffer(replay.place.view, np.float32).tolist()
    assert given_values[:CHUNK_ELEMENTS] == [0.0] * CHUNK_ELEMENTS
    assert given_values[CHUNK_ELEMENTS:] != [0.0] * CHUNK_ELEMENTS


def test_nothing_is_done_that_the_log_does_not_name(replay: Replay) -> None:
    replay.push(FIRST)
    replay.fetch(SECOND)
    replay.push(SECOND)

    replay.follow(applied(SECOND, 0), applied(SECOND, 1))

    assert replay.shard.state.count == 1
    assert replay.fetched == []


def test_a_fenced_incarnation_goes_on_with_what_other_shards_name(replay: Replay) -> None:
    replay.shard.shard.fence(FIRST)

    replay.push(FIRST)
    replay.push(SECOND)

    # A client that is refused raises Fenced, and gives up what is under way elsewhere.
    replay.follow(applied(SECOND, 0), applied(SECOND, 1))

    assert len(replay.answers) == 1


@pytest.mark.parametrize(
    ("record", "what"),
    [
        (a_record(Kind.CHUNK_FETCHED, FIRST, 0, vector=9), "fetch 1, chunk 0 of vector 9"),
        (applied(FIRST, 5), "push 1, chunk 5 of vector"),
    ],
)
def test_what_nobody_asks_for_contradicts_the_record(
    replay: Replay, record: np.void, what: str
) -> None:
    replay.push(FIRST)
    replay.fetch(FIRST)

    with pytest.raises(
        RecordContradicted, match=rf"replica-0 \(incarnation 1\) does not come to {what}"
    ):
        replay.follow(record)


def test_a_push_that_was_refused_in_the_run_alone_contradicts_the_record(replay: Replay) -> None:
    replay.push(FIRST)

    with pytest.raises(RecordContradicted, match="chunk 0 of push 1 of replica-0 diff"):
        replay.follow(a_record(Kind.REFUSED, FIRST, 0))


def test_a_shard_that_waits_for_others_hears_what_it_is_asked_for(replay: Replay) -> None:
    replay.shard.log = np.stack([given(FIRST, 0), given(FIRST, 1)])
    run = object.__new__(ReplayedRun)
    run.replicas = {FIRST: cast("ReplayedReplica", None)}
    run._recording, run._wires = cast("Recording", Recorded()), replay.wires
    time, run._has_come = replay.wires.time, Bell(replay.wires.time)
    replay.fetch(FIRST)

    time.start(lambda: run._follow(replay.shard, 0))
    while time.now < LONG_SECONDS:
        time.wait(LOOK_AGAIN_SECONDS / 2)
        replay.wires.progressed()
    assert replay.fetched == []
    time.wait(LONG_SECONDS)

    assert replay.shard.is_over
    assert len(replay.fetched) == 1
    assert not replay.shard.serving._over, "a connection was made anew"


def test_what_was_asked_for_in_a_connection_given_up_is_waited_for_in_the_next(
    replay: Replay,
) -> None:
    replay.fetch(FIRST)
    replay.shard.receive(LOOK_AGAIN_SECONDS)
    replay.shard.receive(LOOK_AGAIN_SECONDS)
    assert replay.shard._waiting
    replay.wires.time.wait(LONG_SECONDS)

    replay.follow(given(FIRST, 0), given(FIRST, 1))

    assert len(replay.fetched) == 1


def test_an_answer_that_nobody_hears_contradicts_the_record(replay: Replay) -> None:
    replay.fetch(FIRST)
    request = replay.shard.wait_for(given(FIRST, 0))
    replay.wires.time.wait(LONG_SECONDS)

    with pytest.raises(RecordContradicted, match="chunk 0 of fetch 1 of replica-0, which does not"):
        replay.shard.serve(request, given(FIRST, 0))


def test_a_chunk_that_was_given_twice_counts_as_the_first_time() -> None:
    log = np.stack(
        [
            given(SECOND, 0),
            applied(FIRST, 0),
            given(FIRST, 0),
            applied(SECOND, 0),
            given(FIRST, 0),
            given(SECOND, 0),
            given(FIRST, 1),
            given(FIRST, 0),
            applied(FIRST, 0),
        ]
    )

    kept = recording._without_repeats(log)

    assert kept.tolist() == log[[0, 1, 2, 3, 6, 8]].tolist()


def test_a_log_in_which_nothing_was_given_has_no_repeats() -> None:
    log = np.stack([applied(FIRST, 0), applied(FIRST, 0)])

    assert recording._without_repeats(log).tolist() == log.tolist()
