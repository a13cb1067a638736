"""Which rows of a model's parameters the ranks of a replica have, before there are any."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from disttrain.groups import sharding
from disttrain.job.spec import FrozenParameters
from disttrain.job.strategy_kind import Precision
from disttrain.replica.parts import Part
from disttrain.replica.pieces import Sharding, rows
from disttrain.state.layout import ModelLayout
from disttrain.task.errors import ModelError
from oracles.sharded import CPU, RANKS, Tied, normalised


@given(st.integers(0, 50), st.integers(1, 12))
def test_rows_are_those_of_torchs_chunks(length: int, ranks: int) -> None:
    chunks = torch.chunk(torch.arange(length), ranks) if length else ()
    for rank in range(ranks):
        wanted = chunks[rank].tolist() if rank < len(chunks) else []
        assert list(range(length))[rows(length, rank, ranks)] == wanted


def layout(model: nn.Module) -> ModelLayout:
    made = Sharding(model, RANKS, CPU)
    return made.layout(Precision.FLOAT32, {}, FrozenParameters.SHARED)


@pytest.mark.parametrize("make", [Tied, normalised])
def test_each_element_lies_in_one_ranks_vectors_and_buffers_in_the_first_ones(
    make: type[nn.Module],
) -> None:
    model = make()
    found = layout(model)
    for name, parameter in model.named_parameters():
        covered = torch.zeros(parameter.shape)
        for spec in found.tensors:
            if spec.name == name:
                assert spec.of_model == tuple(parameter.shape)
                covered[spec.box] += 1
        assert bool((covered == 1).all()), name
    buffers = [name for name, _ in model.named_buffers()]
    of_buffers = [spec for spec in found.tensors if spec.name in buffers]
    assert len(of_buffers) == len(buffers)
    assert all(spec.vector.partition == 0 for spec in of_buffers)
    assert all(math.prod(spec.shape) for spec in found.tensors)


def test_a_parameter_without_rows_is_refused_by_its_name() -> None:
    model = nn.Linear(3, 2)
    model.temperature = nn.Parameter(torch.tensor(1.0))
    with pytest.raises(ModelError, match=r"'temperature' is a single number; .* take ddp"):
        Sharding(model, 2, CPU).check()


def test_blocks_are_members_of_lists_that_share_no_parameter_with_others() -> None:
    model = Tied()
    assert [*sharding.blocks(model)] == [*model.blocks]
    model.blocks[1].get_submodule("0").weight = model.head.weight
    assert [*sharding.blocks(model)] == [model.blocks[0]]
    inside, after = nn.Linear(2, 2), nn.Linear(2, 2)
    nested = nn.Sequential(nn.ModuleList([inside, nn.Tanh()]), after)
    assert [*sharding.blocks(nested)] == [inside, after]


def test_a_part_that_always_computes_has_a_sample_that_counts_nothing() -> None:
    part = Part(2, 3, always_computes=True)
    assert (part.bounds(2), part.counted(2)) == ((0, 1), 0)
    assert (part.bounds(7), part.counted(7)) == (Part(2, 3).bounds(7), 2)
