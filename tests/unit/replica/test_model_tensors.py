import pytest
import torch
from torch import nn

from builders import placements
from builders.networks import Unusual, a_normalised_network
from disttrain.job.strategy_kind import Precision
from disttrain.replica import model_tensors
from disttrain.replica.errors import ModelNotSupported
from disttrain.state.vector import Vector


def names(described: model_tensors.ModelTensors, vector: Vector) -> list[str]:
    return [spec.name for spec in described.specs(vector)]


def test_parameters_lie_one_after_the_other_in_the_models_order() -> None:
    model = a_normalised_network()

    specs = model_tensors.describe(model).specs(placements.PARAMETERS)

    assert [spec.name for spec in specs] == [name for name, _ in model.named_parameters()]
    assert [spec.first for spec in specs] == [0, 576, 585, 594, 603, 666]
    assert model_tensors.describe(model).layout.elements(placements.PARAMETERS) == 673


def test_a_tied_parameter_has_one_place_and_two_names() -> None:
    (weight, bias) = model_tensors.describe(Unusual()).specs(placements.PARAMETERS)

    assert (weight.name, weight.aliases) == ("embed.weight", ("out.weight",))
    assert (bias.name, bias.first) == ("out.bias", 24)


def test_frozen_parameters_and_buffers_have_vectors_of_their_own() -> None:
    described = model_tensors.describe(Unusual())

    assert names(described, placements.FROZEN) == ["frozen.weight", "frozen.bias"]
    assert names(described, placements.BUFFERS_INT64) == ["mask", "counts"]
    assert names(described, placements.BUFFERS_FLOAT64) == ["scale"]
    assert [spec.dtype for spec in described.specs(placements.BUFFERS_INT64)] == ["bool", "int32"]


def test_a_buffer_that_is_not_persistent_has_no_place() -> None:
    described = model_tensors.describe(Unusual())

    assert names(described, placements.BUFFERS_FLOAT32) == []
    assert placements.BUFFERS_FLOAT32 not in described.vectors


def test_a_buffer_that_a_module_replaced_is_found() -> None:
    model = Unusual()
    described = model_tensors.describe(model)

    model.counts = torch.tensor([7, 8], dtype=torch.int32)

    assert described.tensors(placements.BUFFERS_INT64)[1].tolist() == [7, 8]


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda m: m.embed.to(torch.float64), "parameter 'embed.weight' has the type float64"),
        (lambda m: m.frozen.to(torch.float64), "parameter 'frozen.weight' has the type float64"),
        (
            lambda m: m.register_buffer("phase", torch.zeros(1, dtype=torch.complex64)),
            "buffer 'phase' has the type complex64",
        ),
    ],
)
def test_a_type_that_no_vector_carries_is_named(break_it: object, message: str) -> None:
    model = Unusual()
    assert callable(break_it)
    break_it(model)

    with pytest.raises(ModelNotSupported, match=message):
        model_tensors.describe(model)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "w" * 4097,
            r"parameter 'w{60}\.\.\.' has a name of 4097 characters.* at most 4096; .* shorter",
        ),
        ("__metadata__", "parameter '__metadata__' .* safetensors .* give it another name"),
    ],
)
def test_a_name_that_no_checkpoint_can_hold_is_refused(name: str, message: str) -> None:
    model = nn.Linear(2, 2)
    model.register_parameter(name, nn.Parameter(torch.zeros(2)))

    with pytest.raises(ModelNotSupported, match=message):
        model_tensors.describe(model)


def test_further_names_of_a_tied_parameter_are_looked_at_too() -> None:
    model = nn.Linear(2, 2)
    model.register_parameter("__metadata__", model.bias)

    with pytest.raises(ModelNotSupported, match="__metadata__"):
        model_tensors.describe(model)


def test_a_module_within_the_model_may_call_its_tensors_as_it_likes() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    model.get_submodule("0").register_buffer("__metadata__", torch.zeros(2))

    assert names(model_tensors.describe(model), placements.BUFFERS_FLOAT32) == ["0.__metadata__"]


def test_a_model_may_be_a_single_module() -> None:
    (weight,) = model_tensors.describe(nn.Linear(2, 3, bias=False)).specs(placements.PARAMETERS)

    assert (weight.name, weight.shape) == ("weight", (3, 2))


def test_in_double_precision_parameters_lie_in_vectors_of_that_type() -> None:
    model = Unusual().double()

    described = model_tensors.describe(model, Precision.FLOAT64)

    assert names(described, placements.PARAMETERS_FLOAT64) == ["embed.weight", "out.bias"]
    assert names(described, placements.FROZEN_FLOAT64) == ["frozen.weight", "frozen.bias"]
    assert {placements.PARAMETERS, placements.FROZEN}.isdisjoint(described.vectors)


def test_a_model_of_another_precision_than_the_jobs_is_refused() -> None:
    with pytest.raises(ModelNotSupported, match=r"embed\.weight.*float32"):
        model_tensors.describe(Unusual(), Precision.FLOAT64)
