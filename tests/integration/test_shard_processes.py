"""Shards in processes of their own, both transports: upload, push, fetch."""

from pathlib import Path

import pytest
import torch

from builders import placements
from builders.replicas import replica
from builders.shard_process import ShardPlan, running
from disttrain.parameter_server.client import Push, Version
from disttrain.transport.config import TransportKind

pytestmark = pytest.mark.landing

SGD: dict[str, object] = {"sgd": {"learning_rate": 0.5}}


def plans(kind: TransportKind, folder: Path, shards: int, **more: object) -> list[ShardPlan]:
    return [
        ShardPlan(
            kind=kind,
            address="tcp://127.0.0.1:0"
            if kind is TransportKind.TCP
            else f"ipc://{folder}/s{index}",
            index=index,
            shards=shards,
            **({"optimizer": SGD, "elements": {placements.PARAMETERS: 1000}} | more),  # type: ignore[arg-type]
        )
        for index in range(shards)
    ]


@pytest.mark.parametrize("kind", list(TransportKind))
@pytest.mark.parametrize("shards", [1, 2])
def test_what_was_uploaded_and_pushed_is_fetched(
    kind: TransportKind, shards: int, tmp_path: Path
) -> None:
    elements = {
        placements.PARAMETERS: 100_003,
        placements.FROZEN: 50,
        placements.BUFFERS_FLOAT32: 70,
        placements.BUFFERS_INT64: 3,
    }
    values = {
        placements.PARAMETERS: torch.randn(100_003),
        placements.FROZEN: torch.randn(50),
        placements.BUFFERS_FLOAT32: torch.randn(70),
        placements.BUFFERS_INT64: torch.tensor([1, 2, 3]),
    }
    gradient = torch.randn(100_003)
    later = {
        placements.BUFFERS_FLOAT32: torch.randn(70),
        placements.BUFFERS_INT64: torch.tensor([5, 1, 3]),
    }
    chosen = plans(kind, tmp_path, shards, elements=elements, chunk_bytes=64 << 10)
    with running(chosen) as processes, replica(kind, processes) as one:
        buffers = {vector: one.buffer(tensor) for vector, tensor in values.items()}
        one.pushes.upload(buffers, range(shards))
        before = one.fetch(elements)
        results = one.pushes.push(
            Push(
                sequence=1,
                gradient=one.buffer(gradient),
                versions=[Version(1, 0)] * shards,
                buffers={vector: one.buffer(tensor) for vector, tensor in later.items()},
            )
        )
        after = one.fetch(elements)
    for vector, tensor in values.items():
        assert torch.equal(before[vector], tensor)
    assert [result.version for result in results] == [Version(1, 1)] * shards
    assert [result.staleness for result in results] == [0] * shards
    expected = values[placements.PARAMETERS].clone().add_(gradient, alpha=-0.5)
    assert torch.equal(after[placements.PARAMETERS], expected)
    assert torch.equal(after[placements.FROZEN], values[placements.FROZEN])
    assert torch.equal(after[placements.BUFFERS_FLOAT32], later[placements.BUFFERS_FLOAT32])
    assert after[placements.BUFFERS_INT64].tolist() == [5, 2, 3]
