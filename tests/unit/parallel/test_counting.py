"""What partitions do for a batch: counted as it is sent and computed."""

from collections import OrderedDict
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from builders.divided import divided
from builders.partitions import in_partitions
from disttrain.parallel import (
    CannotPartition,
    Grid,
    L2Pool2d,
    LocalContrastNorm2d,
    LocallyConnected2d,
    Partitioned,
    ReconstructionTarget,
    UnitFilters2d,
    partition,
    pricing,
    reconstruction_losses,
)
from disttrain.parallel.communicator import Communicator, Traffic
from disttrain.parallel.counting import Loss, counted
from disttrain.parallel.layers.partitioned import Value
from disttrain.parallel.losses import ClassLoss
from disttrain.parallel.pricing import Machine, Purpose
from disttrain.parallel.reconstruction import Reconstruction
from disttrain.parallel.ways import Way

MACHINE = Machine(flops_per_second=50e9, bytes_per_second=1.25e8, jitter=0.1)
SAMPLE = (3, 12, 13)


def a_network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False),
        nn.MaxPool2d(2),
        LocallyConnected2d(4, 2, 3, input_size=(6, 6), padding=1),
        LocalContrastNorm2d(3),
        nn.Flatten(),
        nn.Linear(72, 10),
        nn.Linear(10, 6),
    )


def cut_between_layers() -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            stem=nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True)),
            flat=nn.Flatten(),
            body=nn.Sequential(nn.Linear(624, 11), nn.ReLU(inplace=True), nn.Linear(11, 9)),
            act=nn.Tanh(),
            head=nn.Linear(9, 6, bias=False),
        )
    )


def two_stacks() -> nn.Sequential:
    return nn.Sequential(
        *(ReconstructionTarget(), UnitFilters2d(3, 2, 5, input_size=(13, 14), stride=2, block=2)),
        *(L2Pool2d(3, 1, 1), LocalContrastNorm2d(3)),
        *(ReconstructionTarget(), UnitFilters2d(2, 2, 4, input_size=(10, 10), stride=2, block=2)),
        L2Pool2d(3, 1, 1),
    )


@pytest.mark.parametrize("grid", [(1, 2), (2, 2), (2, 3)])
def test_messages_and_bytes_are_those_of_a_step(grid: tuple[int, int]) -> None:
    model, x = a_network(), torch.randn(5, *SAMPLE)
    labels = torch.randint(0, 6, (5,))

    def one(peers: Communicator) -> Traffic:
        made = partition(model, Grid(*grid), peers, SAMPLE)
        functional.cross_entropy(made(x), labels).backward()  # type: ignore[no-untyped-call]
        return peers.traffic

    sent = in_partitions(grid[0] * grid[1], one)

    step = pricing.step(counted(model, Grid(*grid), SAMPLE, 5), MACHINE)

    assert step.nbytes == sum(each.nbytes for each in sent) > 0
    assert step.messages == sum(each.messages for each in sent)


@pytest.mark.parametrize("grid", [(1, 2), (2, 2)])
def test_messages_of_a_loss_in_the_first_partition_are_those_of_a_step(
    grid: tuple[int, int],
) -> None:
    model, x = a_network(), torch.randn(5, *SAMPLE)

    def one(peers: Communicator) -> Traffic:
        made = partition(model, Grid(*grid), peers, SAMPLE)
        found = made.from_first(made.no_input(5, x.dtype) if peers.rank else x)
        found.sum().backward()  # type: ignore[no-untyped-call]
        return peers.traffic

    sent = in_partitions(grid[0] * grid[1], one)

    step = pricing.step(counted(model, Grid(*grid), SAMPLE, 5, from_first=True), MACHINE)

    assert step.nbytes == sum(each.nbytes for each in sent) > 0
    assert step.messages == sum(each.messages for each in sent)


@pytest.mark.parametrize("from_first", [False, True])
@pytest.mark.parametrize("grid", [(1, 2), (2, 2)])
def test_messages_of_a_loss_that_nobody_gathers_are_those_of_a_step(
    grid: tuple[int, int], *, from_first: bool
) -> None:
    model, x, labels = a_network(), torch.randn(5, *SAMPLE), torch.randint(0, 6, (5,))

    def one(peers: Communicator) -> Traffic:
        made = partition(model, Grid(*grid), peers, SAMPLE)
        loss = ClassLoss().losses(made, given(made, x, from_first=from_first), labels)
        loss.sum().backward()  # type: ignore[no-untyped-call]
        return peers.traffic

    sent = in_partitions(grid[0] * grid[1], one)

    counts = counted(model, Grid(*grid), SAMPLE, 5, loss=Loss.OF_PARTS, from_first=from_first)
    step = pricing.step(counts, MACHINE)
    assert step.nbytes == sum(each.nbytes for each in sent) > 0
    assert step.messages == sum(each.messages for each in sent)


def given(made: Partitioned, x: Tensor, *, from_first: bool) -> Value:
    """Samples that the first partition alone has, or all."""
    if not from_first:
        return Value.of_input(x, made.peers)
    return made.input_of_first(made.no_input(len(x), x.dtype) if made.peers.rank else x)


@pytest.mark.parametrize("from_first", [False, True])
@pytest.mark.parametrize("grid", [(1, 2), (2, 2)])
def test_messages_of_an_objective_in_each_stack_are_those_of_a_step(
    grid: tuple[int, int], *, from_first: bool
) -> None:
    model, sample = two_stacks(), (3, 13, 14)
    x = torch.randn(4, *sample)

    def one(peers: Communicator) -> Traffic:
        made = partition(model, Grid(*grid), peers, sample)
        joint = Reconstruction(sparsity=0.1, first=0, last=None)
        found = joint.losses(made, given(made, x, from_first=from_first), None)
        found.sum().backward()  # type: ignore[no-untyped-call]
        return peers.traffic

    sent = in_partitions(grid[0] * grid[1], one)

    counts = counted(model, Grid(*grid), sample, 4, loss=Loss.OF_STACKS, from_first=from_first)

    step = pricing.step(counts, MACHINE)
    assert step.nbytes == sum(each.nbytes for each in sent) > 0
    assert step.messages == sum(each.messages for each in sent)
    assert [sum(layer.sums for layer in layers) for layers in counts.costs] == [
        each.sums for each in sent
    ]


@pytest.mark.parametrize("micro_batches", [None, 1, 3])
@pytest.mark.parametrize(
    ("size", "overrides"),
    [
        (1, {"stem": 0, "body": 0, "head": 0}),
        (2, {"stem": 1, "body": 0, "head": 1}),
        (3, {"stem": 0, "body.0": 1, "body.2": 2, "head": 1}),
        (4, {"stem": "spatial", "body": 3, "head": "features"}),
    ],
)
def test_messages_of_layers_on_one_partition_are_those_of_a_step(
    size: int, overrides: Mapping[str, Way], micro_batches: int | None
) -> None:
    model, samples = cut_between_layers(), 5
    x, weight = torch.randn(samples, *SAMPLE), torch.randn(samples, 6)
    grid = (1, size)
    sent = divided(
        model, grid, x, weight, overrides, of_input=False, micro_batches=micro_batches
    ).traffic

    counts = counted(model, Grid(*grid), SAMPLE, samples, overrides, micro_batches=micro_batches)

    costs = pricing.step(counts, MACHINE).costs
    assert [each.nbytes for each in costs] == [each.nbytes for each in sent]
    assert [each.messages for each in costs] == [each.messages for each in sent]
    for layers in counts.costs:
        for layer in layers:
            if layer.turns:
                assert layer.sent.nbytes == sum(each.nbytes for each in layer.turns)
                assert layer.outputs


def test_partitions_with_whole_layers_compute_what_one_process_computes() -> None:
    model, x = cut_between_layers(), torch.randn(5, *SAMPLE)
    overrides: dict[str, Way] = {"stem": 1, "body.0": 0, "body.2": 2, "head": 1}
    with FlopCounterMode(display=False) as counter:
        loss = model(x).sum()
        forward = counter.get_total_flops()
        loss.backward()

    counts = counted(model, Grid(1, 3), SAMPLE, 5, overrides, micro_batches=2)

    whole = counted(model, Grid(1, 1), SAMPLE, 5)
    for purpose, flops in ((Purpose.INFERENCE, forward), (Purpose.TRAINING, None)):
        found, one = (pricing.step(each, MACHINE, purpose) for each in (counts, whole))
        total = sum(each.flops for each in found.costs)
        assert total == one.largest.flops == (flops or counter.get_total_flops())
        assert sum(each.parameters for each in found.costs) == one.largest.parameters
        # The other two have the output, too.
        kept = sum(each.activation_bytes for each in found.costs)
        assert kept == one.largest.activation_bytes + 2 * 4 * 5 * 6


def test_products_are_those_of_torchs_own_counter() -> None:
    model, x = two_stacks(), torch.randn(4, 3, 13, 14)
    counts = counted(model, Grid(1, 1), x.shape[1:], 4, loss=Loss.OF_STACKS)

    with FlopCounterMode(display=False) as counter:
        total = torch.stack(reconstruction_losses(model, x)).sum()
        forward = counter.get_total_flops()
        total.backward()  # type: ignore[no-untyped-call]

    assert pricing.step(counts, MACHINE, Purpose.INFERENCE).largest.flops == forward > 0
    assert pricing.step(counts, MACHINE).largest.flops == counter.get_total_flops()


def test_what_no_partition_could_compute_is_not_planned() -> None:
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Conv2d(2, 2, 1, device="meta"))
    with pytest.raises(CannotPartition, match=r"1\.weight: it is on meta, and 0\.bias"):
        counted(model, Grid(1, 2), (3, 8, 8), 2)


def test_the_model_keeps_its_values() -> None:
    model = a_network()
    before = [parameter.clone() for parameter in model.parameters()]

    counted(model, Grid(1, 2), SAMPLE, 8)

    assert all(map(torch.equal, before, model.parameters()))
