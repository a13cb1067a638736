"""Models of several chunks: no message holds a vector, nor a shard's part of it."""

from pathlib import Path

import pytest

from builders.runs import BULKY, RunningJob
from disttrain.transport.config import TransportKind
from disttrain.transport.shared_memory import SharedMemoryTransport
from disttrain.transport.tcp import TcpTransport

CHUNK_BYTES = {
    TransportKind.TCP: TcpTransport.chunk_bytes,
    TransportKind.SHARED_MEMORY: SharedMemoryTransport.chunk_bytes,
}


@pytest.mark.parametrize("kind", CHUNK_BYTES)
def test_a_model_of_several_chunks_is_trained(tmp_path: Path, kind: TransportKind) -> None:
    parameters = 3 * CHUNK_BYTES[kind] // 4  # one and a half chunks for each of two shards
    small = [
        f"spec.transport={kind}",
        f"spec.task.arguments.parameters={parameters}",
        "spec.stop={samples: 64}",
    ]
    with RunningJob(tmp_path, small, BULKY) as job:
        assert job.wait() == 0, job.printed()
    model = job.output / "model.safetensors"
    assert model.stat().st_size > 4 * parameters
