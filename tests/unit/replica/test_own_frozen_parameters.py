"""Frozen parameters of a replica's own: in no vector, of any type, the same everywhere."""

from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from disttrain.checkpoint import model_map
from disttrain.job.spec import FrozenParameters
from disttrain.replica import best_model, model_tensors
from disttrain.replica.errors import ModelNotSupported
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.gradient_check import FrozenParameters as Watched
from disttrain.state.layout import ModelLayout
from disttrain.state.vector import FROZEN
from disttrain.task.errors import ModelError
from disttrain.transport.memory import OrdinaryMemory

OWN = FrozenParameters.OWN


class Adapted(nn.Module):
    """A frozen base in half precision, with whole numbers, and a trained rest."""

    def __init__(self, value: float = 1.5, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.base = nn.Linear(4, 4).to(dtype)
        nn.init.constant_(self.base.weight, value)
        self.codes = nn.Parameter(torch.arange(8, dtype=torch.int8), requires_grad=False)
        self.base.requires_grad_(requires_grad=False)
        self.tied = self.base.weight
        self.adapter = nn.Linear(4, 2)
        nn.init.zeros_(self.base.bias)

    def forward(self, values: Tensor) -> Tensor:
        return self.adapter(self.base(values.to(self.base.weight.dtype)).float())  # type: ignore[no-any-return]


def layout(model: nn.Module, frozen: FrozenParameters = OWN) -> ModelLayout:
    return model_tensors.describe(model, frozen=frozen).with_hash().layout


def test_they_are_in_no_vector_and_keep_their_types() -> None:
    found = model_tensors.describe(Adapted(), frozen=OWN)
    assert [spec.name for spec in found.layout.tensors] == ["adapter.weight", "adapter.bias"]
    assert {name: place.tensor.dtype for name, place in found.own.items()} == {
        "codes": torch.int8,
        "tied": torch.bfloat16,
        "base.bias": torch.bfloat16,
    }
    with pytest.raises(ModelNotSupported, match="'codes' has the type int8"):
        model_tensors.describe(Adapted())


def test_a_replica_has_no_memory_for_them_but_the_models_own() -> None:
    model = Adapted()
    before = model.base.weight.data_ptr()
    flat = FlatModel(model, OrdinaryMemory(), torch.device("cpu"), outgoing_buffers=1, frozen=OWN)
    assert model.base.weight.data_ptr() == before
    vectors = {*flat.values_to_upload(), *flat.first_fetch_into(), *flat.fetch_into()}
    assert not [vector for vector in vectors if vector.name == FROZEN]
    assert sum(buffer.nbytes for buffer in flat.values_to_upload().values()) == 4 * 10


def test_replicas_whose_values_differ_are_found_by_the_hash() -> None:
    first, second = layout(Adapted()), layout(Adapted())
    assert first == second
    assert first.own.startswith("xxh3_128:")
    other = layout(Adapted(value=1.25))
    assert "frozen parameters have other values" in str(model_map.first_mismatch(first, other))
    wider = layout(Adapted(dtype=torch.float32))
    assert "frozen parameters have other values" in str(model_map.first_mismatch(first, wider))


def test_what_is_not_known_is_compared_with_nothing() -> None:
    """A checkpoint's model says nothing of them."""
    first = layout(Adapted())
    assert model_map.first_mismatch(ModelLayout(tensors=first.tensors), first) is None
    assert model_map.without_factors(first) == first


def test_a_model_without_any_is_as_ever() -> None:
    assert layout(nn.Linear(2, 2)) == layout(nn.Linear(2, 2), FrozenParameters.SHARED)
    assert layout(nn.Linear(2, 2)).own == ""


def test_a_change_of_one_is_found() -> None:
    model = Adapted()
    watched = Watched(model_tensors.describe(model, frozen=OWN))
    watched.begin()
    watched.check()
    with torch.no_grad():
        model.codes[0] += 1
    with pytest.raises(ModelError, match=r"'codes', which is frozen: .* would reach nobody"):
        watched.check()


def test_files_have_the_rest_alone_and_are_loaded_beside_them(tmp_path: Path) -> None:
    model, file = Adapted(), tmp_path / "best.safetensors"
    best_model.write(model, file, {}, OWN)
    assert safetensors.torch.load_file(file).keys() == {"adapter.weight", "adapter.bias"}

    other = Adapted(value=2.0)
    model_tensors.load(other, file, OWN)
    assert torch.equal(other.adapter.weight, model.adapter.weight)
    assert float(other.base.weight.detach()[0, 0]) == 2.0


@pytest.mark.parametrize("wrong", ["missing", "unexpected"])
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path, wrong: str) -> None:
    model, file = Adapted(), tmp_path / "wrong.safetensors"
    tensors = {"adapter.weight": torch.zeros(2, 4), "adapter.bias": torch.zeros(2)}
    if wrong == "missing":
        del tensors["adapter.bias"]
    else:
        tensors["more"] = torch.zeros(1)
    safetensors.torch.save_file(tensors, file)
    with pytest.raises(RuntimeError, match="(?i)" + wrong):
        model_tensors.load(model, file, OWN)
