"""Gradients of groups are staged exactly once, whatever the way between replica and shard does."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch

from builders import placements
from builders.batch_shards import FIRST_POINT, MEASURE, a_shard, perform, performed, stage_headers
from builders.replicas import Replica, replica, tensor
from builders.shard_thread import ShardThread
from builders.transports import must_receive
from disttrain.parameter_server.client import Stage
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.errors import EvaluationOver, Fenced
from disttrain.parameter_server.shard import Shard
from disttrain.parameter_server.strategies import sandblaster
from disttrain.transport.config import TransportKind
from disttrain.transport.header import Header, Reason, Role, Verb
from disttrain.transport.interface import Buffer, Channel, Slice, Transport

ELEMENTS = 40_000
CHUNK_BYTES = 16 << 10


@pytest.fixture(params=list(TransportKind))
def kind(request: pytest.FixtureRequest) -> TransportKind:
    return TransportKind(request.param)


def made(_: Transport) -> Shard:
    return a_shard(elements=ELEMENTS, chunk_bytes=CHUNK_BYTES)


@pytest.fixture
def shard(kind: TransportKind, tmp_path: Path) -> Iterator[ShardThread]:
    with ShardThread(kind, tmp_path, made) as thread:
        yield thread


@pytest.fixture
def one(kind: TransportKind, shard: ShardThread) -> Iterator[Replica]:
    with replica(kind, [shard]) as made:
        yield made


def begin(shard: ShardThread, evaluation: int = 1, groups: int = 1, number: int = 1) -> None:
    shard.do(
        lambda it: performed(
            perform(it, number, *FIRST_POINT, evaluation=evaluation, groups=groups)
        )
    )


def square_of_what_arrived(shard: ShardThread, *attempts: int, number: int = 2) -> float:
    (square,) = shard.do(lambda it: performed(perform(it, number, *MEASURE, commits=attempts)))
    return float(square)


def ones(one: Replica, value: float = 1.0) -> Buffer:
    return one.buffer(torch.full((ELEMENTS,), value))


def stage(
    one: Replica, attempt: int, gradient: Buffer, group: int = 0, evaluation: int = 1
) -> None:
    incarnations = one.pushes.stage(
        Stage(
            attempt=attempt,
            evaluation=evaluation,
            group=group,
            vector=placements.PARAMETERS,
            gradient=gradient,
        )
    )
    assert incarnations == (1,)


def headers(shard: ShardThread, attempt: int, **fields: int) -> list[Header]:
    found: list[Header] = shard.do(lambda it: stage_headers(it, attempt, **fields))
    return found


def send(channel: Channel, header: Header, gradient: Buffer) -> None:
    channel.send(header, Slice(gradient, header.first * 4, header.count * 4))


def connected(one: Replica, shard: ShardThread) -> closing[Channel]:
    return closing(one.transport.connect(shard.directory_entry.address, Role.SHARD))


def refusal(channel: Channel) -> Reason:
    answer = must_receive(channel)
    assert answer.header.verb == Verb.REFUSED
    return Reason(answer.header.reason)


def test_the_point_of_an_evaluation_goes_out_and_gradients_come_in(
    shard: ShardThread, one: Replica
) -> None:
    begin(shard, groups=2)
    into = one.empty(placements.PARAMETERS, ELEMENTS)
    one.fetches.fetch_trial(1, placements.TRIAL, into)
    assert torch.equal(tensor(into, placements.PARAMETERS), torch.arange(1.0, ELEMENTS + 1))

    stage(one, 1, ones(one), group=1)
    stage(one, 2, ones(one, 3.0), group=0)

    assert square_of_what_arrived(shard, 2, 1) == 4.0 * ELEMENTS


def test_chunks_out_of_order_and_over_two_connections_count_once(
    shard: ShardThread, one: Replica
) -> None:
    begin(shard)
    chance = random.Random(1)
    gradient = ones(one)
    sent = [*headers(shard, 1), *headers(shard, 1)]
    chance.shuffle(sent)
    with connected(one, shard) as other:
        for header in sent:
            send(other, header, gradient)
        stage(one, 1, gradient)
        assert must_receive(other).header.verb == Verb.STAGED

    assert square_of_what_arrived(shard, 1) == ELEMENTS


def test_after_a_reconnection_an_attempt_goes_on(shard: ShardThread, one: Replica) -> None:
    begin(shard)
    gradient = ones(one)
    with connected(one, shard) as lost:
        for header in headers(shard, 1)[:3]:
            send(lost, header, gradient)

    stage(one, 1, gradient)
    stage(one, 1, gradient)

    assert square_of_what_arrived(shard, 1) == ELEMENTS


def test_a_damaged_chunk_changes_nothing(shard: ShardThread, one: Replica) -> None:
    begin(shard)
    gradient = ones(one, 5.0)
    first = headers(shard, 1)[0]
    with connected(one, shard) as channel:
        for changed in (
            {"first": 8},
            {"chunk": 1},
            {"vector": 2},
            {"lease_offset": 1},
        ):
            send(channel, first._replace(**changed), gradient)
            assert refusal(channel) is Reason.WRONG_LAYOUT

    stage(one, 1, ones(one))

    assert square_of_what_arrived(shard, 1) == ELEMENTS


def test_nobody_else_adds_to_an_attempt(
    shard: ShardThread, one: Replica, kind: TransportKind
) -> None:
    begin(shard, groups=2)
    gradient = ones(one)
    first, second, *_ = headers(shard, 1)
    with connected(one, shard) as mine:
        send(mine, first, gradient)
        send(mine, first._replace(lease_offset=9), gradient)
        assert refusal(mine) is Reason.WRONG_LAYOUT, "so the first one has been kept"
    with (
        replica(kind, [shard], index=1) as foreign,
        connected(foreign, shard) as channel,
    ):
        wrong = ones(foreign, 9.0)
        for sender, reason in ((1, Reason.WRONG_LAYOUT), (7, Reason.UNKNOWN_SENDER)):
            send(channel, second._replace(sender=sender), wrong)
            assert refusal(channel) is reason

    stage(one, 1, gradient)
    stage(one, 2, gradient, group=1)

    assert square_of_what_arrived(shard, 1, 2) == ELEMENTS


def test_an_old_incarnation_stages_nothing(shard: ShardThread, one: Replica) -> None:
    begin(shard)
    shard.do(lambda it: it.fence(SenderIncarnation(0, 1)))
    gradient = ones(one)
    with connected(one, shard) as channel:
        send(channel, headers(shard, 1)[0], gradient)
        assert refusal(channel) is Reason.OLD_INCARNATION
    with pytest.raises(Fenced):
        stage(one, 1, gradient)
    assert shard.do(lambda it: it.stage.figures.staged_bytes) == 0


def test_what_is_for_another_evaluation_is_dropped(shard: ShardThread, one: Replica) -> None:
    begin(shard, evaluation=4)
    with pytest.raises(EvaluationOver):
        stage(one, 1, ones(one), evaluation=3)
    with pytest.raises(EvaluationOver):
        one.fetches.fetch_trial(3, placements.TRIAL, one.empty(placements.PARAMETERS, ELEMENTS))

    stage(one, 2, ones(one), evaluation=4)

    assert square_of_what_arrived(shard, 2) == ELEMENTS


def test_whoever_finds_no_room_waits_for_it(
    kind: TransportKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandblaster, "STAGED_BYTES", 0)
    monkeypatch.setattr(sandblaster, "ATTEMPTS_OF_A_REPLICA", 0)
    monkeypatch.setattr(sandblaster, "OTHER_PIECES", 1)
    staged = threading.Event()
    with (
        ShardThread(kind, tmp_path, made) as shard,
        replica(kind, [shard]) as one,
    ):
        begin(shard, groups=2)
        gradient = ones(one)
        stage(one, 1, gradient, group=0)

        def stage_again() -> None:
            with pytest.raises(EvaluationOver):
                stage(one, 2, gradient, group=1)
            staged.set()

        waiting = threading.Thread(target=stage_again, daemon=True)
        waiting.start()
        end = time.monotonic() + 20
        while not shard.do(lambda it: it.refused["busy"]):
            assert time.monotonic() < end
        assert not staged.is_set()
        begin(shard, evaluation=2, number=2)
        assert staged.wait(20)
        waiting.join(20)

        stage(one, 3, gradient, evaluation=2)
        assert square_of_what_arrived(shard, 3, number=3) == ELEMENTS
