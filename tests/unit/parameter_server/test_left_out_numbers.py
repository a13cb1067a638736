"""A replica leaves out the numbers of what it has held back: shards hear of it beforehand."""

from pathlib import Path

import torch

from builders import downpour_shards, placements
from builders.replicas import replica
from builders.shard_thread import ShardThread
from disttrain.job.update_rules.sgd import Sgd
from disttrain.parameter_server.client import Push
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.shard import Shard
from disttrain.transport.config import TransportKind
from disttrain.transport.interface import Transport

ELEMENTS = 100


def a_shard(transport: Transport) -> Shard:
    shard = downpour_shards.build(ShardState(index=0, incarnation=1), Sgd(learning_rate=1.0))
    elements = {placements.PARAMETERS: ELEMENTS}
    shard.configure(placements.a_placement(elements, kept=()), transport.chunk_bytes)
    shard.admit(SenderIncarnation(0, 1))
    return shard


def test_numbers_that_are_left_out_cost_no_refusal(tmp_path: Path) -> None:
    kind = TransportKind.TCP
    with ShardThread(kind, tmp_path, a_shard) as shard, replica(kind, [shard]) as one:
        one.pushes.upload({placements.PARAMETERS: one.buffer(torch.zeros(ELEMENTS))}, [0])
        gradient = one.buffer(torch.ones(ELEMENTS))
        for number in (1, 2, 5, 6, 9):
            one.pushes.push(Push(sequence=number, gradient=gradient, samples=1))

        refused, known = shard.do(
            lambda shard: (shard.refused.total(), shard.state.deliveries.of(0, 1))
        )
        assert (refused, known.sequence, known.pushes, known.samples) == (0, 9, 5, 5)
        (found,) = one.fetch({placements.PARAMETERS: ELEMENTS}).values()
        assert found.eq(-5.0).all()
