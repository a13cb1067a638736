"""What a shard refuses, and what it leaves as it is then; without a socket."""

import pytest
import torch

from builders import downpour_shards, placements
from builders.transports import a_chunk_header, a_header
from disttrain.job.length import Extent
from disttrain.job.schedule import Schedule
from disttrain.job.schedule_kinds import Constant, Warmup
from disttrain.job.update_rules.momentum import Momentum
from disttrain.job.update_rules.sgd import Sgd
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.reporting import Reporter
from disttrain.parameter_server.shard import Shard
from disttrain.transport.header import Header, Reason, Verb

ELEMENTS = 16


def a_shard(*, is_initialised: bool = True, chunk_bytes: int = 4 * ELEMENTS) -> Shard:
    state = ShardState(index=0, incarnation=1, is_initialised=is_initialised)
    shard = downpour_shards.build(state, Sgd(learning_rate=1.0))
    shard.configure(placements.a_placement({placements.PARAMETERS: ELEMENTS}, 1), chunk_bytes)
    for sender in range(2):
        shard.admit(SenderIncarnation(sender, 1))
    return shard


def a_push(**fields: object) -> Header:
    addressed = {"incarnation": 1, "receiver_incarnation": 1, "sequence": 1}
    return a_chunk_header(Verb.PUSH, ELEMENTS, **(addressed | fields))


def parameters(shard: Shard) -> torch.Tensor:
    assert shard.state.values is not None
    return shard.state.values.part(shard.state.values.share.chunk(placements.PARAMETERS, 0))


def answer(shard: Shard, header: Header, value: float = 1.0) -> Header:
    payload = memoryview(torch.full((header.count,), value).numpy().tobytes())
    (only,) = shard.handle(header, payload)
    return only.header


@pytest.mark.parametrize("scale", [1e300, -1.0, 0.0, 1.0000001])
def test_a_push_that_would_grow_or_climb_is_refused_and_counted(scale: float) -> None:
    shard = a_shard()
    refused = answer(shard, a_push(scale=scale))
    assert (refused.verb, refused.reason) == (Verb.REFUSED, Reason.MALFORMED)
    assert shard.refused["malformed"] == 1
    assert shard.state.count == 0
    assert not parameters(shard).any()


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_a_push_is_scaled_down(scale: float) -> None:
    shard = a_shard()
    assert answer(shard, a_push(scale=scale)).verb == Verb.PUSHED
    assert parameters(shard).tolist() == [-scale] * ELEMENTS


def test_a_push_computed_on_a_version_to_come_is_refused() -> None:
    shard = a_shard()
    refused = answer(shard, a_push(version_incarnation=1, version=1))
    assert (refused.verb, refused.reason) == (Verb.REFUSED, Reason.MALFORMED)
    assert not parameters(shard).any()


def test_staleness_is_known_only_of_a_version_of_this_incarnation() -> None:
    shard = a_shard()
    assert answer(shard, a_push(version_incarnation=1)).staleness == 0
    assert answer(shard, a_push(sequence=2, version_incarnation=1)).staleness == 1
    assert answer(shard, a_push(sequence=3, version_incarnation=2, version=99)).staleness == -1


def upload(shard: Shard, sender: int, chunk: int) -> list[Verb]:
    half = ELEMENTS // 2
    place = {"chunk": chunk, "chunks": 2, "first": chunk * half}
    header = a_chunk_header(Verb.UPLOAD, half, sender=sender, incarnation=1, **place)
    payload = memoryview(torch.full((half,), float(sender)).numpy().tobytes())
    return [Verb(answer.header.verb) for answer in shard.handle(header, payload)]


def test_the_values_of_two_uploads_never_mix() -> None:
    shard = a_shard(is_initialised=False, chunk_bytes=4 * ELEMENTS // 2)
    assert upload(shard, 0, 0) == []
    assert upload(shard, 1, 1) == []
    assert not shard.state.is_initialised
    assert upload(shard, 1, 0) == [Verb.UPLOADED]
    assert shard.state.is_initialised
    assert shard.state.values is not None
    for chunk in range(2):
        part = shard.state.values.share.chunk(placements.PARAMETERS, chunk)
        assert bool((shard.state.values.part(part) == 1).all())


def test_an_upload_goes_on_where_its_sender_was() -> None:
    shard = a_shard(is_initialised=False, chunk_bytes=4 * ELEMENTS // 2)
    assert upload(shard, 0, 1) == []
    assert upload(shard, 0, 1) == []
    assert upload(shard, 0, 0) == [Verb.UPLOADED]


def test_what_the_update_rule_keeps_can_be_fetched() -> None:
    state = ShardState(index=0, incarnation=1, is_initialised=True)
    rule = Momentum(learning_rate=1.0, momentum=0.5)
    shard = downpour_shards.build(state, rule)
    placement = placements.a_placement({placements.PARAMETERS: ELEMENTS}, 1, rule.kept)
    shard.configure(placement, 4 * ELEMENTS)
    shard.admit(SenderIncarnation(0, 1))
    answer(shard, a_push(), value=1.0)
    answer(shard, a_push(sequence=2), value=1.0)

    asked = {"vector": placement.number(placements.PARAMETERS.beside("momentum")), "count": 1}
    header = a_header(Verb.FETCH, incarnation=1, receiver_incarnation=1, **asked)
    (given,) = shard.handle(header, memoryview(b""))

    assert (given.header.verb, given.header.count) == (Verb.FETCHED, ELEMENTS)
    assert torch.frombuffer(bytearray(given.payload), dtype=torch.float32).tolist() == [1.5] * 16


@pytest.mark.parametrize("number", [0, 2, 3, 255])
def test_a_vector_that_is_not_kept_here_cannot_be_fetched(number: int) -> None:
    """The table may name one that only a later phase of the job has."""
    state = ShardState(index=0, incarnation=1, is_initialised=True)
    shard = downpour_shards.build(state, Sgd(learning_rate=1.0))
    shard.configure(placements.a_placement({placements.PARAMETERS: ELEMENTS}, 1, ("trial",)), 64)
    shard.admit(SenderIncarnation(0, 1))
    header = a_header(Verb.FETCH, vector=number, count=1, incarnation=1, receiver_incarnation=1)
    assert answer(shard, header).reason == Reason.WRONG_LAYOUT


def of_epochs(train_samples: int) -> Extent:
    return Extent(epoch=train_samples)


def test_the_rate_of_the_next_update_goes_by_the_samples_of_those_before() -> None:
    state = ShardState(index=0, incarnation=1)
    schedule = Schedule(warmup=Warmup(epochs=2), constant=Constant())
    shard = downpour_shards.build(
        state, Sgd(learning_rate=0.5, schedule=schedule), extent=of_epochs
    )
    reporter = Reporter(shard, lambda: 0.0)
    assert reporter.report().rate is None

    state.train_samples = 50
    shard.configure(placements.a_placement({placements.PARAMETERS: 16}, 1), 64)
    state.is_initialised = True
    shard.admit(SenderIncarnation(0, 1))
    answer(shard, a_push(samples=25))

    assert reporter.report().rate == 0.125
