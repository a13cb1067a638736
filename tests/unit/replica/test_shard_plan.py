"""What a job with partitions moves beside the messages of its layers."""

import pytest
import torch
from torch import nn

from disttrain.job.strategy_kind import Exchanges, Formats, Numbers, PushedNumbers
from disttrain.parallel import Grid, LocallyConnected2d
from disttrain.parallel.counting import counted
from disttrain.parallel.partitioned import Partitioned
from disttrain.parallel.pricing import Machine
from disttrain.replica import model_tensors, shard_plan
from disttrain.replica.shard_plan import OfParts, OfShards
from disttrain.state import placement
from disttrain.state.layout import ModelLayout


def a_model() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1),
        nn.BatchNorm2d(3),
        LocallyConnected2d(3, 2, 3, input_size=(6, 7), padding=1),
        nn.Flatten(),
        nn.Linear(84, 40),
        nn.ReLU(),
        nn.Linear(40, 5, bias=False),
    )


def parts_of(model: nn.Module, grid: Grid) -> list[Partitioned]:
    return list(counted(model, grid, (2, 6, 7), 2).parts)


def holders_by_search(part: Partitioned, layout: ModelLayout, shards: int) -> set[int]:
    """Looks for the holder of each single element."""
    table = placement.place(layout, shards)
    found = set()
    for spec in layout.tensors:
        if not spec.vector.is_trained or spec.name not in part.pieces:
            continue
        places = torch.arange(spec.elements).view(spec.shape)
        own = places[part.pieces[spec.name] or ...].flatten() + spec.first
        for holder in range(shards):
            held = table.ranges(holder)[spec.vector]
            if ((own >= held.first) & (own < held.end)).any():
                found.add(holder)
    return found


@pytest.mark.parametrize("grid", [Grid(1, 2), Grid(2, 2), Grid(2, 1)])
@pytest.mark.parametrize("shards", [1, 3, 7, 40])
def test_each_partition_has_values_on_the_shards_that_hold_its_elements(
    grid: Grid, shards: int
) -> None:
    model = a_model()
    layout, parts = model_tensors.describe(model).layout, parts_of(model, grid)

    found = shard_plan.of_parts(parts, layout, shards)

    assert found.shards == tuple(
        tuple(sorted(holders_by_search(part, layout, shards))) for part in parts
    )


def test_what_the_first_process_gives_and_gets_is_what_it_sends() -> None:
    model = a_model()
    parts = parts_of(model, Grid(1, 2))

    found = shard_plan.of_parts(parts, model_tensors.describe(model).layout, 2)

    tied = 3 * (2 * 9 + 1) + 2 * 3
    own = sum(each.numel() for each in parts[1].parameters()) - tied
    # Mean and variance of the normalisation, and how many batches it has seen.
    assert found.given_bytes == 4 * (tied + own + 2 * 3) + 8
    # A byte for each of the parameters that are not tied says whether it has a gradient.
    assert found.returned_bytes == 4 * own + 5


def test_a_push_and_a_fetch_are_of_all_trained_parameters() -> None:
    model = a_model()
    model[0].weight.requires_grad_(False)  # noqa: FBT003  As torch has it.
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)

    formats = Formats(pushed=PushedNumbers.BFLOAT16, fetched=Numbers.FLOAT32)
    found = shard_plan.of_shards(model_tensors.describe(model).layout, 3, formats)

    assert (sum(found.pushed), sum(found.fetched)) == (2 * trained, 4 * trained)
    assert len(found.pushed) == len(found.fetched) == 3
    assert max(found.fetched) - min(found.fetched) <= 2 * placement.ALIGNMENT_BYTES


def test_where_replicas_hold_the_parameters_there_are_no_shards() -> None:
    model = a_model()

    found = shard_plan.of_parts(
        parts_of(model, Grid(1, 2)), model_tensors.describe(model).layout, 0
    )

    assert found.shards == ((), ())
    assert found.given_bytes > found.returned_bytes > 0


MACHINE = Machine(flops_per_second=1e9, bytes_per_second=100.0, latency_seconds=1.0)


def test_a_step_has_its_part_of_pushes_and_fetches() -> None:
    shards = OfShards(pushed=(300, 100), fetched=(200, 200))
    often = Exchanges(pushes=0.5, fetches=0.25)

    # Two messages, and 400 bytes on the line of the replica.
    assert shards.seconds(often, MACHINE, 1) == pytest.approx((0.5 + 0.25) * (2 + 4))
    # Of three replicas, 900 bytes on the line of a shard, and 600.
    assert shards.seconds(often, MACHINE, 3) == pytest.approx(0.5 * (2 + 9) + 0.25 * (2 + 6))
    in_parts = often._replace(parts=4)
    assert shards.seconds(in_parts, MACHINE, 1) == pytest.approx((0.5 + 0.25) * (8 + 4))


def test_values_and_gradients_take_the_line_of_the_first_process() -> None:
    parts = OfParts(given_bytes=300, returned_bytes=100, shards=((), (), ()))

    assert parts.seconds(MACHINE) == pytest.approx(2 * 2 + 4)
    assert OfParts(given_bytes=0, returned_bytes=0, shards=((),)).seconds(MACHINE) == 0.0


def test_a_rule_may_want_more_than_gradients() -> None:
    layout = model_tensors.describe(a_model()).layout
    formats = Formats(pushed=PushedNumbers.BFLOAT16)

    plain, more = (shard_plan.of_shards(layout, 3, formats, beside) for beside in (0, 1))

    # In single precision, as what is fetched.
    assert sum(more.pushed) == sum(plain.pushed) + sum(plain.fetched)
