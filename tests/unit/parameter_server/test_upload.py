"""Which initial values a shard takes over."""

import math

import pytest
import torch

from builders import placements
from builders.transports import a_chunk_header
from disttrain.holder.values import Values
from disttrain.parameter_server import shard
from disttrain.state.vector import Vector
from disttrain.transport.header import Reason, Verb


@pytest.mark.parametrize(
    ("vector", "expected"),
    [
        (placements.PARAMETERS, Reason.NOT_FINITE),
        (placements.FROZEN, Reason.NONE),
        (placements.BUFFERS_FLOAT32, Reason.NONE),
    ],
)
def test_a_mask_may_be_infinite_and_a_trained_parameter_may_not(
    vector: Vector, expected: Reason
) -> None:
    share = placements.a_share({placements.PARAMETERS: 4, vector: 4}, chunk_bytes=16)
    header = a_chunk_header(Verb.UPLOAD, 4, vector=share.placement.number(vector))
    mask = memoryview(torch.full((4,), -math.inf).numpy().tobytes())
    assert shard.store_chunk(Values(share), header, mask) is expected
