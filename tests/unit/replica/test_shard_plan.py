"""What a job with partitions moves beside the messages of its layers."""

import pytest
from torch import nn

from disttrain.job.strategy_kind import Exchanges, Formats, Numbers, PushedNumbers
from disttrain.parallel import Grid, LocallyConnected2d
from disttrain.parallel.counting import counted
from disttrain.parallel.partitioned import Partitioned
from disttrain.parallel.pricing import Machine
from disttrain.replica import shard_plan
from disttrain.replica.shard_plan import OfPartition, OfReplica
from disttrain.state import placement

FORMATS = Formats(pushed=PushedNumbers.BFLOAT16, fetched=Numbers.FLOAT32)


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


def planned(grid: Grid, shards: int, formats: Formats = FORMATS, beside: int = 0) -> OfReplica:
    model = a_model()
    return shard_plan.of_replica(parts_of(model, grid), model, shards, formats, beside)


@pytest.mark.parametrize("grid", [Grid(1, 1), Grid(1, 2), Grid(2, 2), Grid(2, 1)])
@pytest.mark.parametrize("shards", [4, 7, 40])
def test_partitions_push_and_fetch_all_trained_parameters_once(grid: Grid, shards: int) -> None:
    trained = sum(each.numel() for each in a_model().parameters())

    found = planned(grid, shards)

    assert len(found.partitions) == grid.size
    assert sum(sum(each.fetched) for each in found.partitions) == 4 * trained
    assert sum(sum(each.pushed) for each in found.partitions) == 2 * trained
    assert sum(len(each.fetched) for each in found.partitions) == shards
    for each in found.partitions:
        assert max(each.fetched) - min(each.fetched) <= 2 * placement.ALIGNMENT_BYTES


def test_what_all_partitions_have_is_pushed_by_the_first_and_given_to_the_others() -> None:
    model = a_model()
    parts = parts_of(model, Grid(1, 2))

    found = planned(Grid(1, 2), 2)

    # Filters and the normalisation.
    tied = 3 * (2 * 9 + 1) + 2 * 3
    sizes = [sum(each.numel() for each in part.parameters()) for part in parts]
    own = [sum(each.fetched) // 4 for each in found.partitions]
    assert own == [sizes[0], sizes[1] - tied]
    # Mean and variance of the normalisation, and how many batches it has seen.
    assert found.shared_bytes == 4 * (tied + 2 * 3) + 8
    assert found.shared_messages == 2


def test_a_frozen_parameter_is_not_pushed() -> None:
    model = a_model()
    model[0].weight.requires_grad_(False)  # noqa: FBT003  As torch has it.
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)

    found = shard_plan.of_replica(parts_of(model, Grid(1, 1)), model, 3, FORMATS)

    (whole,) = found.partitions
    assert (sum(whole.pushed), sum(whole.fetched)) == (2 * trained, 4 * trained)
    assert (found.shared_bytes, found.shared_messages) == (0, 0)


def test_where_replicas_hold_the_parameters_there_are_no_shards() -> None:
    found = planned(Grid(1, 2), 0)

    assert found.partitions == ()
    assert found.shared_bytes > 0


MACHINE = Machine(flops_per_second=1e9, bytes_per_second=100.0, latency_seconds=1.0)


def test_a_step_has_its_part_of_pushes_and_fetches() -> None:
    own = OfPartition(shards=(0, 1), pushed=(300, 100), fetched=(200, 200))
    often = Exchanges(pushes=0.5, fetches=0.25)

    # Two messages, and 400 bytes on the line of the replica.
    assert own.seconds(often, MACHINE, 1) == pytest.approx((0.5 + 0.25) * (2 + 4))
    # Of three replicas, 900 bytes on the line of a shard, and 600.
    assert own.seconds(often, MACHINE, 3) == pytest.approx(0.5 * (2 + 9) + 0.25 * (2 + 6))
    in_parts = often._replace(parts=4)
    assert own.seconds(in_parts, MACHINE, 1) == pytest.approx((0.5 + 0.25) * (8 + 4))


def test_the_slowest_partition_tells_the_time() -> None:
    slow, fast = (OfPartition(shards=(0,), pushed=(n,), fetched=(n,)) for n in (300, 100))
    replica = OfReplica(partitions=(fast, slow), shared_bytes=200, shared_messages=3)

    assert replica.shard_seconds(Exchanges(), MACHINE, 1) == slow.seconds(Exchanges(), MACHINE, 1)
    # Three messages, and 600 bytes on the line of the first one.
    assert replica.shared_seconds(MACHINE, 4) == pytest.approx(3 + 6)


def test_a_rule_may_want_more_than_gradients() -> None:
    plain, more = (planned(Grid(1, 1), 3, beside=beside).partitions[0] for beside in (0, 1))

    # In single precision, as what is fetched.
    assert sum(more.pushed) == sum(plain.pushed) + sum(plain.fetched)
