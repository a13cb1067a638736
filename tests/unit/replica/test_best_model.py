"""The file of the best evaluation's model: what is kept, and that PyTorch reads the same back."""

import math
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from disttrain.coordinator.protocol.commands import Evaluated, KeepBest
from disttrain.replica import best_model
from disttrain.replica.errors import ModelNotSupported


class Odd(nn.Module):
    """Tied, transposed, empty and scalar tensors of several types."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 5)
        self.tied = self.first
        self.narrow = nn.Parameter(torch.randn(7, 2, dtype=torch.bfloat16).t())
        self.register_buffer("flags", torch.tensor([True, False, True]))
        self.register_buffer("count", torch.tensor(12345678901))
        self.register_buffer("nothing", torch.zeros(0, 4))


def rules(
    file: Path, best: float | None, *, name: str = "accuracy", lower: bool = False
) -> KeepBest:
    return KeepBest(file=str(file), name=name, wants_lower=lower, best=best)


def measured(accuracy: float) -> Evaluated:
    return Evaluated(samples=4, loss=0.5, sums={"accuracy": 4 * accuracy})


def test_a_kept_model_is_read_back_by_pytorch(tmp_path: Path) -> None:
    model, file = Odd(), tmp_path / "best.safetensors"
    assert best_model.keep(rules(file, None), model, measured(0.5))

    other = Odd()
    other.load_state_dict(safetensors.torch.load_file(file), strict=True)
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name
    with safetensors.safe_open(file, "pt") as opened:
        said = opened.metadata()
    assert (said["disttrain.measure"], said["disttrain.value"]) == ("accuracy", "0.5")
    assert best_model.keep(rules(file, None, name="", lower=True), model, measured(0.75))
    with safetensors.safe_open(file, "pt") as opened:
        said = opened.metadata()
    assert (said["disttrain.measure"], said["disttrain.value"]) == ("loss", "0.5")


class Extra(nn.Linear):
    """Says more in its state_dict() than its tensors."""

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": 3}


def test_what_is_no_tensor_is_not_kept_as_it_is_not_exported(tmp_path: Path) -> None:
    model, file = nn.Sequential(Extra(2, 2)), tmp_path / "best.safetensors"
    assert best_model.keep(rules(file, None), model, measured(0.5))
    assert safetensors.torch.load_file(file).keys() == {"0.weight", "0.bias"}


def test_a_buffer_of_another_type_than_a_file_takes_is_named(tmp_path: Path) -> None:
    model = Odd()
    model.flags = torch.zeros(3, dtype=torch.complex64)
    with pytest.raises(ModelNotSupported, match="buffer 'flags' has become complex64, which no"):
        best_model.keep(rules(tmp_path / "best.safetensors", None), model, measured(0.5))


@pytest.mark.parametrize(
    ("best", "name", "lower", "value", "is_kept"),
    [
        (0.5, "accuracy", False, 0.6, True),
        (0.5, "accuracy", False, 0.5, False),
        (0.5, "accuracy", True, 0.4, True),
        (0.5, "accuracy", True, 0.6, False),
        (None, "accuracy", False, math.nan, False),
        (None, "accuracy", False, math.inf, False),
        (None, "acc", False, 0.5, False),
        (None, "", True, 0.0, True),
        (0.5, "", True, 0.0, False),
    ],
)
def test_only_a_better_model_is_kept(
    tmp_path: Path, *, best: float | None, name: str, lower: bool, value: float, is_kept: bool
) -> None:
    file = tmp_path / "best.safetensors"
    kept = best_model.keep(rules(file, best, name=name, lower=lower), Odd(), measured(value))
    assert kept is file.exists() is is_kept


def test_a_disk_that_takes_nothing_costs_only_the_file(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "best.safetensors"
    assert not best_model.keep(rules(missing, None), Odd(), measured(0.5))
