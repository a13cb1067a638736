"""Whole models in partitions."""

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from builders.divided import BOUNDS, GRIDS, divided, far, furthest, undivided, whole_of
from builders.partitions import in_partitions
from disttrain.parallel import (
    Alone,
    Box,
    CannotPartition,
    Grid,
    LocalContrastNorm2d,
    LocallyConnected2d,
    Partitioned,
    partition,
)
from disttrain.parallel.communicator import Communicator
from disttrain.parallel.layers.windowed import View, Windowed
from disttrain.parallel.ways import Way

SAMPLE = (3, 12, 13)


class Odd(nn.Module):
    """A layer that nobody knows."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(13, 5)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x)
        return found


def a_model(*more: nn.Module) -> nn.Sequential:
    torch.manual_seed(11)
    stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.LeakyReLU(0.1))
    layers = OrderedDict(
        stem=stem,
        pool=nn.MaxPool2d(2, ceil_mode=True),
        local=LocallyConnected2d(4, 2, 3, input_size=(6, 7), padding=1),
        contrast=LocalContrastNorm2d(3),
        flat=nn.Flatten(),
        hidden=nn.Linear(2 * 6 * 7, 11),
        act=nn.Tanh(),
        head=nn.Linear(11, 6),
    )
    for number, each in enumerate(more):
        layers[f"more{number}"] = each
    return nn.Sequential(layers).double()


def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(12)
    return torch.randn(5, *SAMPLE, dtype=torch.float64), torch.randint(0, 6, (5,))


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(
    "overrides", [{}, {"head": "whole"}, {"local": "whole", "hidden": "whole"}]
)
def test_a_model_gives_what_one_process_does(
    overrides: Mapping[str, Way], dtype: torch.dtype
) -> None:
    model, (x, _) = a_model().to(dtype), batch()
    x, weight, bound = x.to(dtype), torch.randn(5, 6, dtype=dtype), BOUNDS[dtype]
    wanted = undivided(model, x, weight)

    for grid in GRIDS:
        found = divided(model, grid, x, weight, overrides)
        # What batch normalisation subtracts again has no gradient but rounding.
        without = {k: v for k, v in found.of_parameters.items() if k != "stem.0.bias"}
        assert max(far(v, wanted.of_parameters[k]) for k, v in without.items()) < bound, grid
        assert far(found.output, wanted.output) < bound
        assert far(found.of_input, wanted.of_input) < bound


def test_an_unknown_layer_is_kept_whole_and_that_is_said() -> None:
    model = nn.Sequential(OrderedDict(conv=nn.Conv2d(3, 2, 3, padding=1), odd=Odd())).double()
    x, _ = batch()
    weight = torch.randn_like(model(x))

    made = partition(model, Grid(1, 1), Alone(), SAMPLE)

    assert made.notes == (
        "odd (Odd) is not divided: partition 0 computes it, and gathers 312 numbers of each sample",
    )
    wanted = undivided(model, x, weight)
    assert furthest(divided(model, (2, 2), x, weight), wanted) < 1e-10


class Residual(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + super().forward(x)  # type: ignore[no-untyped-call]
        return found


def hooked() -> nn.Module:
    made = nn.Conv2d(3, 3, 1)
    made.register_forward_pre_hook(lambda _, inputs: (2 * inputs[0],))
    return made


def test_a_container_that_does_more_than_call_its_layers_is_kept_whole() -> None:
    model = nn.Sequential(nn.Conv2d(3, 3, 1), Residual(nn.Conv2d(3, 3, 1)), hooked()).double()
    x, _ = batch()
    weight = torch.randn_like(model(x))

    assert furthest(divided(model, (1, 2), x, weight), undivided(model, x, weight)) < 1e-10
    notes = partition(model, Grid(1, 1), Alone(), SAMPLE).notes
    assert [note.split()[0] for note in notes] == ["1", "2"]


def halved(module: nn.Module, given: Any, gradients: Any) -> tuple[Tensor]:
    del module, gradients
    return (given[0] * 0.5,)


def test_a_layer_with_a_hook_of_its_backward_is_kept_whole() -> None:
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Tanh(), nn.Conv2d(2, 2, 1)).double()
    model[2].register_full_backward_hook(halved)
    x, _ = batch()
    weight = torch.randn_like(model(x))

    assert furthest(divided(model, (1, 2), x, weight), undivided(model, x, weight)) < 1e-10


class Centred(nn.Module):
    """Puts another tensor in the place of its buffer."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        y = x / self.mean
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
        return y


def test_a_buffer_that_a_layer_replaces_is_the_new_one() -> None:
    model = nn.Sequential(nn.Conv2d(3, 2, 1), Centred()).double()
    part = partition(copy.deepcopy(model), Grid(1, 1), Alone(), SAMPLE)
    x, _ = batch()
    for _ in range(2):
        found, wanted = part(x), model(x)
        found.square().sum().backward()
        wanted.square().sum().backward()
        assert far(found, wanted) < 1e-12
    assert far(_mean(part), _mean(model)) < 1e-12
    for own, one in zip(part.parameters(), model.parameters(), strict=True):
        assert own.grad is not None
        assert one.grad is not None
        assert far(own.grad, one.grad) < 1e-10


def _mean(model: nn.Module) -> Tensor:
    return dict(model.named_buffers())["1.mean"]


def test_a_layer_may_come_twice_if_it_has_no_parameters() -> None:
    act = nn.Tanh()
    model = nn.Sequential(nn.Conv2d(3, 2, 1), act, nn.Conv2d(2, 2, 1), act).double()
    x, _ = batch()
    weight = torch.randn_like(model(x))

    assert furthest(divided(model, (1, 2), x, weight), undivided(model, x, weight)) < 1e-10


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 3)),
        nn.Sequential(nn.Conv2d(3, 2, 3, padding=1, padding_mode="reflect"), nn.Conv2d(2, 2, 3)),
    ],
)
def test_a_model_whose_first_layer_is_whole_trains_without_a_gradient_of_its_input(
    model: nn.Sequential,
) -> None:
    x, _ = batch()
    model = model.double()
    weight = torch.randn_like(model(x))
    overrides: list[dict[str, Way]] = [{"0": "whole"}, {str(n): "whole" for n in range(len(model))}]

    for override in overrides:
        found = divided(model, (1, 2), x, weight, override, of_input=False)
        wanted = undivided(model, x, weight, of_input=False)
        assert furthest(found, wanted) < 1e-10


class Counting(Windowed):
    """A layer of one's own with a buffer, a module, and another way in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv2d(3, 2, 1)
        self.register_buffer("shift", torch.tensor(0.5))

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        return height, width

    def input_window(self, output: Box) -> Box:
        return output

    def output_channels(self, channels: int) -> int:
        return channels - 1

    def forward_window(self, x: Tensor, view: View) -> Tensor:
        del view
        found: Tensor = self.inner(x) + self.shift
        return found if self.training else -found


@pytest.mark.parametrize(
    "make", [Counting, lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(468))]
)
def test_a_layers_own_state_goes_where_its_partition_goes(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(2)
    single = nn.Sequential(make())
    double = copy.deepcopy(single).double()
    x, _ = batch()

    def one(peers: Communicator) -> tuple[Tensor, Tensor]:
        made = partition(copy.deepcopy(single), Grid(1, 2), peers, SAMPLE).double()
        return made(x).detach(), made.eval()(x).detach()

    found, wanted = in_partitions(2, one), (double.train()(x), double.eval()(x))

    for trained, evaluated in found:
        assert far(trained, wanted[0]) < 1e-6
        assert far(evaluated, wanted[1]) < 1e-6


def test_frozen_parameters_stay_frozen() -> None:
    model = a_model().requires_grad_(requires_grad=False)

    made = partition(model, Grid(1, 1), Alone(), SAMPLE)

    assert not any(parameter.requires_grad for parameter in made.parameters())


def test_features_come_in_flat() -> None:
    model = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 4)).double()
    x = torch.randn(5, 6, dtype=torch.float64)
    weight = torch.randn(5, 4, dtype=torch.float64)

    assert furthest(divided(model, (1, 2), x, weight), undivided(model, x, weight)) < 1e-10


class Doubled(nn.Linear):
    """Not what a Linear computes."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_a_subclass_of_a_known_layer_computes_what_it_does() -> None:
    model = nn.Sequential(nn.Conv2d(3, 1, 1), nn.Flatten(), Doubled(156, 4)).double()
    x, _ = batch()
    weight = torch.randn(5, 4, dtype=torch.float64)

    assert furthest(divided(model, (1, 2), x, weight), undivided(model, x, weight)) < 1e-10


@pytest.mark.parametrize(
    ("dtype", "steps", "bound"), [(torch.float64, 100, 1e-8), (torch.float32, 10, 1e-4)]
)
def test_training_in_partitions_is_training_in_one_process(
    dtype: torch.dtype, steps: int, bound: float
) -> None:
    model = a_model().to(dtype)
    x, labels = batch()
    x = x.to(dtype)

    def trained(made: nn.Module) -> nn.Module:
        optimizer = torch.optim.SGD(made.parameters(), lr=0.05)
        for _ in range(steps):
            optimizer.zero_grad()
            functional.cross_entropy(made(x), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return made

    plain = trained(copy.deepcopy(model))

    def one(peers: Communicator) -> nn.Module:
        return trained(partition(copy.deepcopy(model), Grid(2, 2), peers, SAMPLE))

    parts = [made for made in in_partitions(4, one) if isinstance(made, Partitioned)]
    found = whole_of(model, parts, torch.detach)

    assert max(far(found[name], p.detach()) for name, p in plain.named_parameters()) < bound
    ours, theirs = parts[3].state_dict(), plain.state_dict()
    for name in ("stem.1.running_mean", "stem.1.running_var", "stem.1.num_batches_tracked"):
        assert far(ours[name].double(), theirs[name].double()) < bound


def test_parts_of_a_model_that_nobody_holds_have_the_shapes_of_theirs() -> None:
    with torch.device("meta"):
        model = nn.Sequential(LocallyConnected2d(3, 8, 3, input_size=(12, 13)), nn.Flatten())

    def one(peers: Communicator) -> tuple[int, bool]:
        made = partition(model, Grid(2, 1), peers, SAMPLE)
        return sum(p.numel() for p in made.parameters()), all(p.is_meta for p in made.parameters())

    found = in_partitions(2, one)

    assert sum(count for count, _ in found) == sum(p.numel() for p in model.parameters())
    assert all(is_meta for _, is_meta in found)


def test_in_evaluation_nothing_is_dropped_and_running_statistics_count() -> None:
    model, (x, _) = a_model(nn.Dropout(0.5)), batch()
    model(x)
    wanted = copy.deepcopy(model).eval()(x)

    found = in_partitions(
        2, lambda peers: partition(copy.deepcopy(model), Grid(1, 2), peers, SAMPLE).eval()(x)
    )

    assert far(found[1], wanted) < 1e-12


REFUSED: list[tuple[str, nn.Module, Grid, dict[str, Any], str]] = [
    ("not a sequence", Odd(), Grid(1, 1), {}, "only an nn.Sequential"),
    ("another grid", a_model(), Grid(1, 2), {}, "1 x 2 are 2 partitions, not 1"),
    ("an unknown layer", a_model(), Grid(1, 1), {"heda": "whole"}, "did you mean head"),
    ("an unknown way", a_model(), Grid(1, 1), {"head": "rows"}, "'rows' is none of"),
    ("features", a_model(), Grid(1, 1), {"pool": "features"}, "features is not possible"),
    ("spatial", a_model(), Grid(1, 1), {"head": "spatial"}, "spatial is not possible"),
    (
        "no features",
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.Linear(13, 2)),
        Grid(1, 1),
        {},
        "1: a Linear needs features; put an nn.Flatten",
    ),
    (
        "no rows",
        nn.Sequential(nn.Flatten(), nn.MaxPool2d(2)),
        Grid(1, 1),
        {},
        "1: it needs rows and columns",
    ),
    (
        "another size",
        nn.Sequential(LocallyConnected2d(3, 1, 3, input_size=(9, 9))),
        Grid(1, 1),
        {},
        r"0: its filters are for an input of \(9, 9\), got \(12, 13\)",
    ),
    (
        "other features",
        nn.Sequential(nn.Flatten(), nn.Linear(9, 2)),
        Grid(1, 1),
        {},
        "it takes 9 features and gets 468",
    ),
    (
        "a container with a forward of its own",
        Residual(nn.Conv2d(3, 3, 1)),
        Grid(1, 1),
        {},
        "the model is a Residual; only an nn.Sequential",
    ),
    ("an activation", a_model(), Grid(1, 1), {"act": "features"}, "it goes by what comes before"),
    (
        "a dropout of all",
        nn.Sequential(nn.Dropout(1.0)),
        Grid(1, 1),
        {},
        "0: p: must be at least 0",
    ),
    (
        "a parameter of two layers",
        nn.Sequential(*[nn.Conv2d(3, 3, 1)] * 2),
        Grid(1, 1),
        {},
        "1.weight: it is the same parameter as 0.weight",
    ),
    (
        "running means of two layers",
        nn.Sequential(*[nn.BatchNorm2d(3, affine=False)] * 2),
        Grid(1, 1),
        {},
        "1.running_mean: it is the same buffer as 0.running_mean",
    ),
    (
        "a layer on another device",
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.Conv2d(2, 2, 1, device="meta")),
        Grid(1, 1),
        {},
        "1.weight: it is on meta, and 0.bias on cpu; move the whole model to one device",
    ),
    (
        "statistics on another device",
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2, affine=False, device="meta")),
        Grid(1, 1),
        {},
        "1.running_mean: it is on meta, and 0.bias on cpu",
    ),
    (
        "a whole layer that does not fit",
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.Conv1d(9, 2, 1)),
        Grid(1, 1),
        {},
        "1: it does not take",
    ),
    (
        "rows and columns in one",
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.Flatten(2)),
        Grid(1, 1),
        {},
        "1: gives 2 dimensions for a sample",
    ),
    (
        "samples in one",
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.Flatten(0, 1), nn.Flatten()),
        Grid(1, 1),
        {},
        "1: gives 4 samples for 2; it has to keep them",
    ),
]


@pytest.mark.parametrize(
    ("model", "grid", "overrides", "said"),
    [row[1:] for row in REFUSED],
    ids=[r[0] for r in REFUSED],
)
def test_what_cannot_be_divided_is_refused_by_the_layers_name(
    model: nn.Module, grid: Grid, overrides: dict[str, Way], said: str
) -> None:
    with pytest.raises(CannotPartition, match=said):
        partition(model, grid, Alone(), SAMPLE, overrides)


@pytest.mark.parametrize(
    ("layers", "grid", "said"),
    [
        ([nn.Conv2d(3, 2, 11)], (3, 1), "0: its output of 2 x 3 cannot be divided over 3 x 1"),
        ([nn.Flatten(), nn.Linear(468, 2)], (3, 1), "1: 2 outputs cannot be divided over 3"),
    ],
)
def test_there_are_no_more_partitions_than_rows_columns_and_outputs(
    layers: list[nn.Module], grid: tuple[int, int], said: str
) -> None:
    with pytest.raises(CannotPartition, match=said):
        in_partitions(
            3, lambda peers: partition(nn.Sequential(*layers), Grid(*grid), peers, SAMPLE)
        )


@pytest.mark.parametrize("sample", [(), (3, 10), (3, 4, 5, 6)])
def test_a_sample_is_an_image_or_features(sample: tuple[int, ...]) -> None:
    with pytest.raises(CannotPartition, match="only images and features"):
        partition(nn.Sequential(nn.Tanh()), Grid(1, 1), Alone(), sample)
