"""Models that are cut between layers, which lie whole on one partition each."""

import copy
import gc
import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from builders.divided import BOUNDS, divided, far, furthest, undivided
from builders.partitions import PATIENCE_SECONDS, in_partitions
from disttrain.parallel import Alone, CannotPartition, Grid, HashDropout, partition
from disttrain.parallel.communicator import Communicator
from disttrain.parallel.partitioned import Shape
from disttrain.parallel.ways import Way
from disttrain.parallel.whole_layers import mixing

SAMPLE = (3, 6, 5)
SAMPLES = 5
PLACES: list[tuple[int, Mapping[str, Way]]] = [
    (1, {"body": 0, "head": 0}),
    (2, {"body": 0, "head": 1}),
    (2, {"stem": 1, "body": 0, "head": 1}),
    (3, {"stem": 2, "body": 1}),
    (3, {"stem": 0, "body.0": 1, "body.2": 2, "head": 1}),
    (4, {"stem": 3, "body.0": 1, "body.2": 2, "head": 0}),
    (4, {"stem": "spatial", "body": 3, "head": "features"}),
]


def a_model(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(
        OrderedDict(
            stem=nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True)),
            flat=nn.Flatten(),
            body=nn.Sequential(nn.Linear(120, 11), nn.ReLU(inplace=True), nn.Linear(11, 9)),
            act=nn.Tanh(),
            head=nn.Linear(9, 6, bias=False),
        )
    ).to(dtype)


def a_batch(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    torch.manual_seed(6)
    return torch.randn(SAMPLES, *SAMPLE, dtype=dtype), torch.randn(SAMPLES, 6, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("size", "overrides"), PLACES)
def test_outputs_and_gradients_are_those_of_one_process(
    size: int, overrides: Mapping[str, Way], dtype: torch.dtype
) -> None:
    model, (x, weight) = a_model(dtype), a_batch(dtype)
    wanted = undivided(model, x, weight)

    for micro_batches in (None, 1, 2, 3, SAMPLES + 2):
        found = divided(model, (1, size), x, weight, overrides, micro_batches=micro_batches)
        assert furthest(found, wanted) < BOUNDS[dtype], micro_batches


@settings(max_examples=25, deadline=None)
@given(
    places=st.lists(st.integers(0, 3), min_size=5, max_size=5),
    micro_batches=st.integers(1, 6),
    samples=st.integers(1, 6),
    trained=st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_layers_may_lie_anywhere(
    places: list[int], micro_batches: int, samples: int, trained: list[bool]
) -> None:
    torch.manual_seed(1)
    layers = [nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2)]
    for layer, is_trained in zip(layers, trained, strict=True):
        layer.requires_grad_(is_trained)
    model = nn.Sequential(*layers).double()
    overrides: dict[str, Way] = {str(layer): place for layer, place in enumerate(places)}
    x, weight = torch.randn(samples, 4).double(), torch.randn(samples, 2).double()

    found = divided(model, (2, 2), x, weight, overrides, micro_batches=micro_batches)

    assert furthest(found, undivided(model, x, weight)) < 1e-10


@pytest.mark.parametrize("micro_batches", [1, 2, 4])
def test_what_crosses_is_each_activation_and_its_gradient_once(micro_batches: int) -> None:
    model, samples = a_model(), 8
    x, weight = torch.randn(samples, *SAMPLE).double(), torch.randn(samples, 6).double()
    overrides: dict[str, Way] = {"stem": 0, "body": 1, "head": 2}
    cuts, output, size = (4 * 6 * 5, 9), 6, 3

    traffic = divided(model, (1, size), x, weight, overrides, micro_batches=micro_batches).traffic

    # The output goes to each other partition at once, since all have the loss.
    assert sum(each.messages for each in traffic) == 2 * len(cuts) * micro_batches + size - 1
    elements = samples * (2 * sum(cuts) + output * (size - 1))
    assert sum(each.nbytes for each in traffic) == 8 * elements
    assert sum(each.sums for each in traffic) == 0


class _Meets(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: "Meeting") -> Tensor:
        ctx.layer = layer
        layer.come("forward")
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.layer.come("backward")
        return gradients[0], None


class Meeting(nn.Module):
    """Passes slices on, and for those that it is told computes only together with another one."""

    def __init__(self, barrier: threading.Barrier, together: Mapping[str, list[int]]) -> None:
        super().__init__()
        self.barrier, self.together = barrier, together
        self.calls = {"forward": 0, "backward": 0}

    def __deepcopy__(self, copied: dict[int, Any]) -> "Meeting":
        return Meeting(self.barrier, self.together)

    def come(self, way: str) -> None:
        number = self.calls[way]
        self.calls[way] += 1
        if number in self.together[way]:
            self.barrier.wait(PATIENCE_SECONDS)

    def forward(self, x: Tensor) -> Tensor:
        if x.is_meta or len(x) == 2:
            # No slice: it is tried with two samples.
            return x.clone()
        found: Tensor = _Meets.apply(x, self)
        return found


def test_two_partitions_compute_at_the_same_time() -> None:
    """Each of the first one's later slices meets an earlier one of the second, and the reverse."""
    barrier, slices = threading.Barrier(2), 4
    later, earlier = list(range(1, slices)), list(range(slices - 1))
    first = Meeting(barrier, {"forward": later, "backward": earlier})
    second = Meeting(barrier, {"forward": earlier, "backward": later})
    model = nn.Sequential(nn.Linear(3, 3), first, nn.Linear(3, 3), second).double()
    samples = 3 * slices
    x, weight = torch.randn(samples, 3).double(), torch.randn(samples, 3).double()
    overrides: dict[str, Way] = {"0": 0, "1": 0, "2": 1, "3": 1}

    divided(model, (1, 2), x, weight, overrides, micro_batches=slices)

    assert barrier.n_waiting == 0
    assert not barrier.broken


@pytest.mark.parametrize("micro_batches", [1, 3, 5])
@pytest.mark.parametrize("second", [1, "features"])
def test_a_mask_is_the_same_for_any_number_of_slices(second: Way, micro_batches: int) -> None:
    torch.manual_seed(3)
    layers = (nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.3))
    model = nn.Sequential(*layers).double()
    hashed = copy.deepcopy(model)
    hashed[1] = HashDropout(0.5, seed=9, layer=2)
    hashed[3] = HashDropout(0.3, seed=9, layer=4)
    x = torch.randn(SAMPLES, 8).double()
    overrides: dict[str, Way] = {"0": 0, "2": second}

    def one(peers: Communicator) -> list[Tensor]:
        made = partition(
            *(copy.deepcopy(model), Grid(1, 2), peers, (8,), overrides),
            micro_batches=micro_batches,
            seed=9,
        )
        return [made(x).detach() for _ in range(2)]

    steps = in_partitions(2, one)[1]

    for found in steps:
        assert far(found, hashed(x)) < 1e-12
    assert far(*steps) > 0.1


def normalised() -> nn.Sequential:
    torch.manual_seed(4)
    stem = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    return nn.Sequential(stem, nn.Conv2d(4, 2, 3), nn.Flatten()).double()


@pytest.mark.parametrize(
    ("overrides", "micro_batches"),
    [({"0": 1, "1": 0}, 1), ({"0": 1, "0.1": "spatial", "1": 0}, 3)],
    ids=["one slice", "all wait for the batch"],
)
def test_statistics_are_those_of_the_whole_batch(
    overrides: Mapping[str, Way], micro_batches: int
) -> None:
    model, x = normalised(), torch.randn(SAMPLES, *SAMPLE).double()
    plain, weight = copy.deepcopy(model), torch.randn(SAMPLES, 4).double()
    wanted = undivided(model, x, weight)

    found = divided(model, (1, 2), x, weight, overrides, micro_batches=micro_batches)

    assert far(found.output, wanted.output) < 1e-10
    assert far(found.of_input, wanted.of_input) < 1e-10

    def one(peers: Communicator) -> dict[str, Tensor]:
        made = partition(
            *(copy.deepcopy(model), Grid(1, 2), peers, SAMPLE, overrides),
            micro_batches=micro_batches,
        )
        made(x)
        return dict(made.named_buffers())

    plain(x)
    _, owner = in_partitions(2, one)
    for name, buffer in plain.named_buffers():
        torch.testing.assert_close(owner[name], buffer)


class Counting(nn.Module):
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x


class Centred(nn.Module):
    """No buffer tells that it looks at all samples."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class Particular(nn.Module):
    """Takes numbers near zero alone."""

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x * torch.ones(2, device=x.device)[(x * 9).round().long()]
        return found


class Before(nn.Module):
    """Only later samples depend on earlier ones."""

    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(0)


def test_whether_a_layer_mixing_is_tried_on_a_copy() -> None:
    shape = Shape(channels=3, height=2, width=2)
    norm, state = nn.BatchNorm2d(3), torch.get_rng_state()

    assert mixing(norm, shape)
    assert not mixing(nn.Sequential(nn.Dropout2d(), nn.ReLU(inplace=True)), shape)
    assert not mixing(nn.BatchNorm2d(3, device="meta"), shape)

    assert norm.num_batches_tracked == 0
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (nn.BatchNorm2d(3), "a BatchNorm2d has statistics of a whole batch"),
        (nn.BatchNorm2d(3, track_running_stats=False), "a BatchNorm2d has statistics of a whole"),
        (nn.Sequential(nn.Tanh(), nn.InstanceNorm2d(3, track_running_stats=True)), "InstanceNorm"),
        (Counting(), "it changes its buffers in each call"),
        (Centred(), "what it makes of a sample depends on others of the batch"),
        (Before(), "what it makes of a sample depends on others of the batch"),
        (
            Particular(),
            "two samples of numbers from -1 to 1 cannot be tried: index",
        ),
        (nn.Softmax(dim=0), "what it makes of a sample depends on others of the batch"),
    ],
)
def test_a_layer_that_needs_the_whole_batch_gets_no_slices(layer: nn.Module, why: str) -> None:
    model = nn.Sequential(OrderedDict(first=nn.Conv2d(3, 3, 1), odd=layer))
    overrides: dict[str, Way] = {"first": 0, "odd": 1}

    def made(micro_batches: int | None, overrides: Mapping[str, Way]) -> None:
        in_partitions(
            2,
            lambda peers: partition(
                *(copy.deepcopy(model), Grid(1, 2), peers, SAMPLE, overrides),
                micro_batches=micro_batches,
            ),
        )

    with pytest.raises(CannotPartition, match=rf"odd.*: .*{why}.*; .* set microBatches to 1"):
        made(None, overrides)
    made(1, overrides)
    made(None, {"first": 1, "odd": 1})


def test_statistics_of_each_sample_need_no_batch() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.InstanceNorm2d(4, affine=True), nn.Flatten())
    x, weight = torch.randn(SAMPLES, *SAMPLE).double(), torch.randn(SAMPLES, 120).double()

    found = divided(model.double(), (1, 2), x, weight, {"0": 0, "1": 1}, micro_batches=3)

    assert furthest(found, undivided(model, x, weight)) < 1e-10


class Shift(nn.Module):
    """The gradient of its parameter is that of its input, in the same memory for one sample."""

    def __init__(self) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.zeros(1, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.by


def test_adding_up_over_slices_leaves_the_gradients_of_inputs_alone() -> None:
    model = nn.Sequential(Shift(), nn.Linear(4, 3)).double()
    x, weight = torch.randn(SAMPLES, 4).double(), torch.randn(SAMPLES, 3).double()

    found = divided(model, (1, 2), x, weight, {"0": 0, "1": 1}, micro_batches=SAMPLES)

    assert furthest(found, undivided(model, x, weight)) < 1e-10


def test_a_partition_keeps_nothing_of_layers_that_are_not_its_own() -> None:
    def one(peers: Communicator) -> tuple[list[bool], set[str]]:
        model = a_model()
        weights = [weakref.ref(each) for each in model.parameters()]
        made = partition(model, Grid(1, 2), peers, SAMPLE, {"stem": 0, "body": 1, "head": 0})
        del model
        gc.collect()
        return [each() is not None for each in weights], {n for n, _ in made.named_parameters()}

    (first, own), (second, others) = in_partitions(2, one)

    assert own == {"stem.0.weight", "stem.0.bias", "head.weight"}
    assert others == {"body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias"}
    assert first == [True, True, False, False, False, False, True]
    assert second == [not each for each in first]


def test_types_are_known_in_a_region_of_autocast() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 4))
    x = torch.randn(6, 4)

    def found(module: nn.Module) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y: Tensor = module(x)
        y.float().square().sum().backward()  # type: ignore[no-untyped-call]
        return y.detach().float()

    def one(peers: Communicator) -> Tensor:
        overrides: dict[str, Way] = {"0": 0, "1": 1, "2": 0}
        made = partition(copy.deepcopy(model), Grid(1, 2), peers, (4,), overrides)
        return found(made)

    wanted = found(copy.deepcopy(model))
    assert all(far(each, wanted) < 1e-2 for each in in_partitions(2, one))


def test_an_output_goes_backward_once() -> None:
    part = partition(a_model(), Grid(1, 1), Alone(), SAMPLE, {"stem": 0, "body": 0, "head": 0})
    x, _ = a_batch()
    y = part(x).sum()
    torch.autograd.grad(y, list(part.parameters()), retain_graph=True)
    with pytest.raises(RuntimeError, match="goes backward once"):
        torch.autograd.grad(y, list(part.parameters()))


@pytest.mark.parametrize(
    ("way", "said"),
    [
        (1, "wholeOn.head: there is no partition 1; the last one is 0"),
        (-1, "wholeOn.head: there is no partition -1"),
        (
            True,
            "partitioning.head: True is none of spatial, features, whole, no grid as 1x2",
        ),
        ("0", "partitioning.head: '0' is none of"),
    ],
)
def test_a_partition_that_there_is_not_is_refused(way: Any, said: str) -> None:
    with pytest.raises(CannotPartition, match=said):
        partition(a_model(), Grid(1, 1), Alone(), SAMPLE, {"head": way})


def test_what_goes_by_the_layer_before_it_stays_where_that_lies() -> None:
    def one(peers: Communicator) -> list[str]:
        overrides: dict[str, Way] = {"stem": 1}
        layers = nn.Sequential(
            OrderedDict(stem=nn.Conv2d(3, 2, 1), act=nn.Tanh(), odd=nn.LayerNorm([2, 6, 5]))
        )
        made = partition(layers, Grid(1, 2), peers, SAMPLE, overrides)
        return [*made.notes, *(name for name, _ in made.named_parameters())]

    note = "odd (LayerNorm) is not divided: partition 1 computes it, and gathers 60 numbers of"
    for rank, (said, *names) in enumerate(in_partitions(2, one)):
        assert said.startswith(note)
        own = ("stem.weight", "stem.bias", "odd.weight", "odd.bias")
        assert names == (list(own) if rank else [])


def test_training_is_that_of_one_process() -> None:
    model, (x, weight) = a_model(), a_batch()

    def trained(made: nn.Module) -> dict[str, Tensor]:
        parameters = list(made.parameters())
        optimizer = torch.optim.SGD(parameters, lr=0.01)
        for _ in range(100):
            optimizer.zero_grad()
            (made(x) - weight).square().mean().backward()
            optimizer.step()
        return {name: each.detach() for name, each in made.named_parameters()}

    overrides: dict[str, Way] = {"stem": 0, "body": 1, "head": 2}
    wanted = trained(copy.deepcopy(model))
    found = in_partitions(
        3,
        lambda peers: trained(
            partition(copy.deepcopy(model), Grid(1, 3), peers, SAMPLE, overrides)
        ),
    )
    whole = dict(itertools.chain.from_iterable(each.items() for each in found))
    assert whole.keys() == wanted.keys()
    assert max(far(whole[name], each) for name, each in wanted.items()) < 1e-8
