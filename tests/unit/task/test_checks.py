from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from disttrain.task import checks
from disttrain.task.errors import DatasetError, LossError, MeasureError, ModelError, UserCodeError
from disttrain.task.task import Split


def a_network(*, of: torch.dtype = torch.float32, on: str = "cpu") -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, dtype=of, device=on))


def a_frozen_network() -> nn.Module:
    return a_network().requires_grad_(requires_grad=False)


def a_torn_network() -> nn.Module:
    model = a_network()
    nn.init.constant_(model.get_parameter("1.bias"), float("nan"))
    return model


def a_torn_tie() -> nn.Module:
    """As `x.weight = nn.Parameter(y.weight.data)` makes it."""
    model = a_network()
    model.get_submodule("1").weight = nn.Parameter(model.get_parameter("0.weight").data)
    return model


class Extra(nn.Linear):
    """Is not loaded without what it said of its state."""

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": 3}

    def set_extra_state(self, state: dict[str, int]) -> None:
        pass


def test_a_tied_parameter_is_no_torn_tie() -> None:
    model = a_network()
    model.get_submodule("1").weight = model.get_parameter("0.weight")
    assert checks.check_model(model) is model


def test_a_model_that_was_compiled_in_place_has_its_names() -> None:
    model = a_network()
    model.compile()
    assert checks.check_model(model) is model


def test_a_trainable_model_is_returned() -> None:
    model = a_network()
    assert checks.check_model(model) is model


def test_a_frozen_parameter_may_have_any_type() -> None:
    model = a_network(of=torch.float64)
    model.get_submodule("1").requires_grad_(requires_grad=False)
    assert checks.check_model(model) is model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (None, r"must return a torch\.nn\.Module, got None"),
        (a_network, "got a function"),
        (nn.ReLU(), r"ReLU has no trainable parameter \(0 frozen\); leave requires_grad true"),
        (a_frozen_network(), r"no trainable parameter \(4 frozen\)"),
        (a_network(of=torch.float64), r"'1\.weight' is float64; parameters must be float32"),
        (a_network(of=torch.bfloat16), r"'1\.weight' is bfloat16; .* torch\.autocast"),
        (a_network(on="meta"), r"'1\.weight' is on the meta device and has no values"),
        (a_torn_network(), r"'1\.bias' begins with a value that is not a finite number; see how"),
        (nn.LazyLinear(2), "'weight' has no shape yet; run one batch"),
        (a_torn_tie(), r"'0\.weight' and '1\.weight' share memory.* one Parameter"),
        (torch.compile(a_network()), r"wrapper, _orig_mod\..*; call model\.compile\(\)"),
        (nn.Sequential(Extra(2, 2)), r"'0' is a Extra, whose set_extra_state\(\) .* in buffers"),
        (nn.DataParallel(a_network()), r"wrapper, module\..*; return the model itself"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused(model: object, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        checks.check_model(model)


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(())


class Unreadable:
    def __getitem__(self, index: int) -> int:
        return index

    def __len__(self) -> int:
        message = "the disk is gone"
        raise OSError(message)


class Boundless:
    """As one that draws samples at random, without an end of its own."""

    def __getitem__(self, index: int) -> int:
        return index

    def __len__(self) -> int:
        return 2**62


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (None, "got None without __len__ and __getitem__"),
        ({1, 2}, "got a set without __getitem__"),
        (Endless(), r"^spec\.task\.entrypoint: .* that extends disttrain\.Sources, got a Endless"),
        ([], r"^Task\.dataset\('train'\) is empty; check the paths among spec\.task\.arguments$"),
        (Boundless(), rf"has {2**62} samples, and a replica holds the order of at most {2**33};"),
        ([1] * 31, r"^spec\.batchSize: must be at most .* samples, 31, got 32$"),
    ],
)
def test_a_data_set_without_batches_is_refused(dataset: object, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        checks.check_dataset(dataset, Split.TRAIN, batch_size=32)


def test_the_number_of_samples_is_returned() -> None:
    assert checks.check_dataset([1] * 32, Split.TRAIN, batch_size=32) == 32


def test_a_test_split_may_be_smaller_than_a_batch_but_not_empty() -> None:
    assert checks.check_dataset([1], Split.TEST, batch_size=32) == 1
    with pytest.raises(DatasetError, match=r"Task\.dataset\('test'\) is empty"):
        checks.check_dataset([], Split.TEST, batch_size=32)


def test_a_length_that_raises_is_the_users_error() -> None:
    with pytest.raises(UserCodeError, match="OSError: the disk is gone"):
        checks.check_dataset(Unreadable(), Split.TRAIN, batch_size=32)


def test_a_scalar_with_a_gradient_is_a_loss() -> None:
    loss = torch.ones(3, requires_grad=True).mean()
    assert checks.check_loss(loss).mean is loss


def test_whether_a_loss_is_finite_is_not_asked_here() -> None:
    loss = torch.full((), float("nan"), requires_grad=True)
    assert checks.check_loss(loss).mean is loss


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (0.5, "must return a tensor or a Loss, got a float"),
        (None, "must return a tensor or a Loss, got None"),
        (torch.ones(32, requires_grad=True), r"a tensor of shape \(32,\); take the mean"),
        (torch.ones(1, requires_grad=True), r"a tensor of shape \(1,\)"),
        (torch.tensor(3), "must return a floating-point tensor, got int64"),
        (torch.tensor(0.5), r"without a gradient; .* without detach\(\)"),
    ],
)
def test_a_loss_without_a_gradient_is_refused(loss: object, message: str) -> None:
    with pytest.raises(LossError, match=message):
        checks.check_loss(loss)


def test_measures_become_numbers() -> None:
    measures = {"accuracy": torch.tensor(3), "error": torch.tensor([0.5]), "seen": 4}
    assert checks.check_measures(measures) == {"accuracy": 3.0, "error": 0.5, "seen": 4.0}
    assert checks.check_measures({}) == {}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Güte %", "Güte %"),
        ("top\n5", r"top\n5"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\ud800", r"\ud800"),
        ("a\u202eb", r"a\u202eb"),
    ],
)
def test_a_name_that_cannot_be_printed_is_escaped(name: str, shown: str) -> None:
    assert checks.check_measures({name: 1}) == {shown: 1.0}


@pytest.mark.parametrize(
    ("measures", "message"),
    [
        (None, "must return a dict of sums by name, got None"),
        ({"accuracy": torch.ones(2)}, r"\['accuracy'\] must be a scalar, .* got shape \(2,\)"),
        ({"accuracy": "high"}, r"\['accuracy'\] must be a scalar, .* got a str"),
    ],
)
def test_other_measures_are_refused(measures: object, message: str) -> None:
    with pytest.raises(MeasureError, match=message):
        checks.check_measures(measures)


def test_the_sum_of_a_measure_may_need_a_gradient() -> None:
    value: Tensor = torch.tensor(2.0, requires_grad=True)
    assert checks.check_measures({"loss": value.detach()}) == {"loss": 2.0}


class Statistics(nn.Module):
    """Keeps its BatchNorm in eval mode, whatever it is told."""

    def __init__(self, *, track: bool = True) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2, track_running_stats=track)

    def train(self, mode: bool = True) -> "Statistics":  # noqa: FBT001, FBT002 - PyTorch's own.
        super().train(mode)
        self.norm.eval()
        return self


@pytest.mark.parametrize("model", [nn.Sequential(nn.BatchNorm1d(2)), Statistics(track=False)])
def test_outputs_that_depend_on_the_other_samples_are_no_sum_over_samples(
    model: nn.Module,
) -> None:
    with pytest.raises(ModelError, match=r"is a BatchNorm1d.*use GroupNorm"):
        checks.check_sum_over_samples(model.train())


def test_statistics_that_stay_as_they_are_do_not_matter() -> None:
    checks.check_sum_over_samples(Statistics().train())
    checks.check_sum_over_samples(nn.Sequential(nn.GroupNorm(1, 2), nn.LayerNorm(2)).train())
