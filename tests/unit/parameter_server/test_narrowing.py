"""Gradients and parameters in half of the bits: what rounding does, and what a shard takes."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from builders import downpour_shards, placements
from builders.transports import a_chunk_header, a_header
from disttrain.holder.values import bytes_of
from disttrain.job.update_rule import UpdateRule
from disttrain.job.update_rules.momentum import Momentum
from disttrain.job.update_rules.sgd import Sgd
from disttrain.parameter_server import presence
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.narrowing import (
    ErrorFeedback,
    narrow_gradient,
    quantise,
    widened,
)
from disttrain.parameter_server.shard import Shard
from disttrain.state.placement import Range
from disttrain.transport.header import (
    BLOCK_ELEMENTS,
    ElementType,
    Header,
    Reason,
    Verb,
    blocks_around,
)

ELEMENTS = 6
CHUNK_BYTES = 4 * 4
"""Four elements as the shard holds them: a second chunk has two."""


def rounded(gradient: Tensor) -> Tensor:
    into = torch.empty(len(gradient), dtype=torch.bfloat16)
    narrow_gradient(gradient, into)
    return into.float()


def test_a_gradient_is_rounded_as_pytorch_rounds() -> None:
    gradient = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    assert torch.equal(rounded(gradient), gradient.bfloat16().float())
    # The upper half of the bits, and a tie between two.
    ties = torch.tensor([1.0 + 2**-8, 1.0 + 3 * 2**-8])
    assert rounded(ties).tolist() == [1.0, 1.0 + 2**-6]


@pytest.mark.parametrize("beside", [0.0, 1.0, presence.MARK])
def test_marks_stay_and_what_is_too_small_gets_none(beside: float) -> None:
    gradient = torch.tensor([presence.MARK, -1e-45, 1e-45, -1e-39, 0.0, beside])
    found = rounded(gradient)
    is_marked = torch.signbit(found) & (found == 0)
    assert is_marked.tolist() == [True, False, False, False, False, math.copysign(1, beside) < 0]
    assert presence.present(found)[0].first == 1


def test_a_gradient_of_nothing_is_rounded() -> None:
    assert rounded(torch.zeros(0)).tolist() == []


def a_shard(rule: UpdateRule | None = None, *, double: bool = False) -> Shard:
    rule = rule or Sgd(learning_rate=1.0)
    state = ShardState(index=0, incarnation=1, is_initialised=True)
    shard = downpour_shards.build(state, rule)
    own = placements.PARAMETERS_FLOAT64 if double else placements.PARAMETERS
    vectors = {own: ELEMENTS, placements.FROZEN: 4, placements.BUFFERS_FLOAT32: 4}
    vectors = {own: ELEMENTS} if double else vectors
    shard.configure(placements.a_placement(vectors, 1, rule.kept), CHUNK_BYTES * (1 + double))
    shard.admit(SenderIncarnation(0, 1))
    return shard


def push(shard: Shard, values: list[float], chunk: int = 0, **fields: Any) -> Header:
    said = {"sequence": 1, "first": 4 * chunk, "chunk": chunk, "chunks": 2} | fields
    whole = a_chunk_header(Verb.PUSH, len(values), incarnation=1, receiver_incarnation=1, **said)
    header = whole._replace(element_type=ElementType.BFLOAT16)
    payload = bytes_of(torch.tensor(values).bfloat16())
    answers = list(shard.handle(header, payload))
    return answers[-1].header if answers else header


def parameters(shard: Shard) -> Tensor:
    assert shard.state.values is not None
    return shard.state.values.tensor(shard.state.values.trained)


def test_a_push_in_half_of_the_bits_is_applied_in_single_precision() -> None:
    shard = a_shard()
    push(shard, [1.0, 2.0, -3.0, 0.15625])
    answer = push(shard, [4.0, 5.0], chunk=1)
    assert answer.verb == Verb.PUSHED
    assert parameters(shard).tolist() == [-1.0, -2.0, 3.0, -0.15625, -4.0, -5.0]


def test_it_is_scaled_after_it_was_widened() -> None:
    shard = a_shard()
    push(shard, [1.0, 1.0, 1.0, 1.0], scale=1 / 3)
    assert torch.equal(parameters(shard)[:4], torch.full((4,), -1 / 3))


def test_marks_arrive() -> None:
    shard = a_shard(Momentum(learning_rate=1.0))
    assert shard.state.values is not None
    velocity = shard.state.values.tensor(placements.PARAMETERS.beside("momentum")).fill_(1.0)
    push(shard, [presence.MARK, 0.0, presence.MARK, 0.0])
    assert velocity[:4].tolist() == pytest.approx([1.0, 0.9, 1.0, 0.9])


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_what_arrives_has_to_be_finite(value: float) -> None:
    shard = a_shard()
    assert push(shard, [1.0, value, 0.0, 0.0]).reason == Reason.NOT_FINITE
    assert not parameters(shard).any()


def test_only_single_precision_is_pushed_so() -> None:
    assert push(a_shard(double=True), [1.0] * 4).reason == Reason.WRONG_LAYOUT
    shard = a_shard()
    push(shard, [1.0] * 4)
    push(shard, [1.0] * 2, chunk=1)
    buffers = push(shard, [1.0] * 4, sequence=2, vector=3)
    assert buffers.reason == Reason.WRONG_LAYOUT


def fetch(shard: Shard, element_type: ElementType, vector: int = 1, chunks: int = 2) -> list[Any]:
    header = a_header(
        Verb.FETCH,
        vector=vector,
        element_type=element_type,
        count=chunks,
        incarnation=1,
        receiver_incarnation=1,
        sequence=1,
    )
    return [
        (answer.header, bytes(answer.payload)) for answer in shard.handle(header, memoryview(b""))
    ]


def test_parameters_are_fetched_rounded_and_cut_as_they_are_held() -> None:
    shard = a_shard()
    values = parameters(shard).copy_(torch.tensor([1.0, 1.001, -2.3, 1e-3, 7.7, 8.8]))
    found = fetch(shard, ElementType.BFLOAT16)
    assert [(one.first, one.count, one.chunks) for one, _ in found] == [(0, 4, 2), (4, 2, 2)]
    assert {one.element_type for one, _ in found} == {ElementType.BFLOAT16}
    whole = torch.frombuffer(bytearray(b"".join(each for _, each in found)), dtype=torch.bfloat16)
    assert torch.equal(whole, values.bfloat16())
    exact = fetch(shard, ElementType.FLOAT32)
    assert b"".join(each for _, each in exact) == bytes(bytes_of(values))


@pytest.mark.parametrize("vector", [2, 3])
def test_frozen_parameters_and_buffers_are_fetched_as_they_are(vector: int) -> None:
    shard = a_shard()
    (refused,) = fetch(shard, ElementType.BFLOAT16, vector, chunks=1)
    assert refused[0].reason == Reason.WRONG_LAYOUT
    (given,) = fetch(shard, ElementType.FLOAT32, vector, chunks=1)
    assert given[0].verb == Verb.FETCHED


def test_double_precision_is_not_fetched_so() -> None:
    (refused,) = fetch(a_shard(double=True), ElementType.BFLOAT16, chunks=1)
    assert refused[0].reason == Reason.WRONG_LAYOUT


def test_marks_are_found_by_the_runs_between_them() -> None:
    found = rounded(torch.tensor([1.0, presence.MARK, presence.MARK, -1e-45]))
    assert presence.present(found) == [Range(0, 1), Range(3, 4)]


def quantised(values: Tensor) -> Tensor:
    _, nbytes = blocks_around(0, len(values))
    memory = torch.zeros(nbytes, dtype=torch.uint8)
    quantise(values, memory)
    return memory


@pytest.mark.parametrize("elements", [0, 1, 127, 128, 129, 70_000])
def test_whole_numbers_are_near_by_their_blocks_largest(elements: int) -> None:
    values = torch.randn(elements, generator=torch.Generator().manual_seed(0))
    found = widened(quantised(values), 0, elements)
    for first in range(0, elements, BLOCK_ELEMENTS):
        block = values[first : first + BLOCK_ELEMENTS]
        error = (found[first : first + BLOCK_ELEMENTS] - block).abs().max()
        assert float(error) <= float(block.abs().max()) / 254 * (1 + 1e-5)


@pytest.mark.parametrize("size", [1e-45, 1e-38, 1e-29, 1e17])
def test_whole_numbers_of_any_size_stay_finite(size: float) -> None:
    values = torch.tensor([size, -size, 0.0])
    found = widened(quantised(values), 0, 3)
    wanted = values if size > 1e-28 else torch.zeros(3)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("element_type", [ElementType.BFLOAT16, ElementType.INT8])
def test_what_was_pushed_and_the_rest_are_all_differences(element_type: ElementType) -> None:
    feedback, draw = ErrorFeedback(element_type), torch.Generator().manual_seed(1)
    whole = torch.zeros(1000, dtype=torch.float64)
    pushed = torch.zeros(1000, dtype=torch.float64)
    _, nbytes = blocks_around(0, 1000)
    for _ in range(100):
        difference = torch.randn(1000, generator=draw)
        whole += difference.double()
        if element_type is ElementType.INT8:
            into = torch.zeros(nbytes, dtype=torch.uint8)
            feedback.round(difference, into)
            pushed += widened(into, 0, 1000).double()
        else:
            into = torch.zeros(1000, dtype=torch.bfloat16)
            feedback.round(difference, into)
            pushed += into.double()

    assert float((pushed + feedback.rest.double() - whole).norm() / whole.norm()) < 1e-6
    assert float((pushed - whole).norm() / whole.norm()) > 1e-5


@pytest.mark.parametrize("element_type", [ElementType.BFLOAT16, ElementType.INT8])
def test_what_rounding_took_from_a_long_push_does_not_make_the_next_one_long(
    element_type: ElementType,
) -> None:
    """Holders apply each push times its scale: both are within the norm of 1 that is allowed."""
    feedback, draw = ErrorFeedback(element_type), torch.Generator().manual_seed(1)
    applied = torch.zeros(1000, dtype=torch.float64)
    wanted = torch.zeros(1000, dtype=torch.float64)
    _, nbytes = blocks_around(0, 1000)
    for norm in (300.0, 1.0, 0.5):
        difference = torch.randn(1000, generator=draw)
        difference *= norm / difference.norm()
        feedback.scale = min(1.0, 1.0 / norm)
        wanted += feedback.scale * difference.double()
        if element_type is ElementType.INT8:
            into = torch.zeros(nbytes, dtype=torch.uint8)
            feedback.round(difference, into)
            pushed = feedback.scale * widened(into, 0, 1000).double()
        else:
            into = torch.zeros(1000, dtype=torch.bfloat16)
            feedback.round(difference, into)
            pushed = feedback.scale * into.double()
        assert float(pushed.norm()) < 1.05
        applied += pushed

    assert float((applied + feedback.rest.double() - wanted).norm() / wanted.norm()) < 1e-6


def test_a_block_whose_scale_is_no_number_is_refused() -> None:
    shard = a_shard()
    memory = quantised(torch.ones(4))
    memory[:4] = torch.tensor([math.nan]).view(torch.uint8)
    push = a_chunk_header(Verb.PUSH, 4, incarnation=1, receiver_incarnation=1, sequence=1)
    push = push._replace(chunks=2, element_type=ElementType.INT8)

    (answer,) = shard.handle(push, bytes_of(memory))

    assert answer.header.reason == Reason.NOT_FINITE


def test_double_precision_does_not_travel_as_whole_numbers() -> None:
    shard = a_shard(double=True)
    push = a_chunk_header(Verb.PUSH, 2, incarnation=1, receiver_incarnation=1, sequence=1)
    push = push._replace(chunks=3, element_type=ElementType.INT8)

    (answer,) = shard.handle(push, bytes_of(quantised(torch.ones(2))))

    assert answer.header.reason == Reason.WRONG_LAYOUT
