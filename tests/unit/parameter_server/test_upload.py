"""Which initial values a shard takes over."""

import math

import pytest
import torch

from builders.transports import a_chunk_header
from disttrain.layout import Range
from disttrain.parameter_server import upload
from disttrain.parameter_server.values import Values
from disttrain.transport.header import Reason, Vector, Verb


@pytest.mark.parametrize(
    ("vector", "expected"),
    [
        (Vector.PARAMETERS, Reason.NOT_FINITE),
        (Vector.FROZEN, Reason.NONE),
        (Vector.BUFFERS_FLOAT32, Reason.NONE),
    ],
)
def test_a_mask_may_be_infinite_and_a_trained_parameter_may_not(
    vector: Vector, expected: Reason
) -> None:
    part = Range(first=0, end=4)
    values = Values({Vector.PARAMETERS: part, vector: part}, chunk_bytes=16)
    header = a_chunk_header(Verb.UPLOAD, 4, vector=vector)
    mask = memoryview(torch.full((4,), -math.inf).numpy().tobytes())
    assert upload.store_chunk(values, header, mask) is expected
