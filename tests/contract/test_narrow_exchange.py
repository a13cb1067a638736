"""Fewer bytes each way, over every transport: the numbers are the rounded ones."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import torch

from builders import downpour_shards, placements
from builders.replicas import Replica, replica, tensor
from builders.shard_thread import ShardThread
from disttrain.job.update_rules.sgd import Sgd
from disttrain.parameter_server.client import Push
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.narrowing import quantise, widened
from disttrain.parameter_server.shard import Shard
from disttrain.transport.config import TransportKind
from disttrain.transport.header import ElementType
from disttrain.transport.interface import Transport

ELEMENTS = 40_001
"""Of several chunks, the last of an odd length."""
CHUNK_BYTES = 16 << 10
NARROW = placements.PARAMETERS.narrow


@pytest.fixture(params=list(TransportKind))
def kind(request: pytest.FixtureRequest) -> TransportKind:
    return TransportKind(request.param)


def made(_: Transport, index: int = 0, shards: int = 1) -> Shard:
    state = ShardState(index=index, incarnation=1, is_initialised=True)
    shard = downpour_shards.build(state, Sgd(learning_rate=1.0))
    shard.configure(placements.a_placement({placements.PARAMETERS: ELEMENTS}, shards), CHUNK_BYTES)
    shard.admit(SenderIncarnation(0, 1))
    return shard


@pytest.fixture
def shard(kind: TransportKind, tmp_path: Path) -> Iterator[ShardThread]:
    with ShardThread(kind, tmp_path, made) as thread:
        yield thread


@pytest.fixture
def one(kind: TransportKind, shard: ShardThread) -> Iterator[Replica]:
    with replica(kind, [shard]) as made:
        yield made


def drawn(seed: int) -> torch.Tensor:
    return torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(seed))


def test_what_is_pushed_and_fetched_is_rounded_and_half_as_long(
    shard: ShardThread, one: Replica
) -> None:
    gradient = drawn(0)
    sent = one.buffer(gradient.bfloat16())
    push = Push(sequence=1, gradient=sent, rounded_to=ElementType.BFLOAT16, scale=0.5, samples=8)
    (result,) = one.pushes.push(push)
    assert (result.version.count, push.nbytes) == (1, 2 * ELEMENTS)

    held = -0.5 * gradient.bfloat16().float()
    into = {NARROW: one.empty(NARROW, ELEMENTS)}
    fetched = one.fetches.fetch(into)
    assert fetched.samples == 8
    assert torch.equal(tensor(into[NARROW], NARROW), held.bfloat16())
    exact = one.fetch({placements.PARAMETERS: ELEMENTS})
    assert torch.equal(exact[placements.PARAMETERS], held)

    counted = shard.traffic
    assert counted == (2 * ELEMENTS, 2 * ELEMENTS + 4 * ELEMENTS)


@pytest.mark.parametrize("shards", [1, 3])
def test_whole_numbers_arrive_in_their_blocks_wherever_shards_and_chunks_begin(
    kind: TransportKind, tmp_path: Path, shards: int
) -> None:
    difference = drawn(3)
    vector = placements.PARAMETERS.rounded(ElementType.INT8)
    _, nbytes = vector.place_of(0, ELEMENTS)
    sent = torch.zeros(nbytes, dtype=torch.uint8)
    quantise(difference, sent)

    def thread(index: int) -> ShardThread:
        folder = tmp_path / str(index)
        folder.mkdir()
        return ShardThread(kind, folder, partial(made, index=index, shards=shards))

    with ExitStack() as stack:
        threads = [stack.enter_context(thread(index)) for index in range(shards)]
        one = stack.enter_context(replica(kind, threads))
        push = Push(sequence=1, gradient=one.buffer(sent), rounded_to=ElementType.INT8, samples=8)
        one.pushes.push(push)
        found = one.fetch({placements.PARAMETERS: ELEMENTS})[placements.PARAMETERS]
        carried = sum(thread.traffic[0] for thread in threads)

    assert torch.equal(found, -widened(sent, 0, ELEMENTS))
    assert float((found + difference).abs().max()) <= float(difference.abs().max()) / 254
    # Where a chunk begins within a block, that is sent twice.
    assert nbytes <= carried < 1.03 * nbytes
    assert 4 * ELEMENTS / carried > 3.7


def test_pushes_of_both_kinds_follow_one_another(one: Replica) -> None:
    wide, narrow = drawn(1), drawn(2)
    one.pushes.push(Push(sequence=1, gradient=one.buffer(wide)))
    one.pushes.push(
        Push(sequence=2, gradient=one.buffer(narrow.bfloat16()), rounded_to=ElementType.BFLOAT16)
    )

    exact = one.fetch({placements.PARAMETERS: ELEMENTS})
    assert torch.equal(exact[placements.PARAMETERS], -wide - narrow.bfloat16().float())
