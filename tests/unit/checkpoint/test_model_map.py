"""The first difference between two models, said so that a person can act."""

import pytest

from builders import placements
from builders.checkpoints import a_layout, a_tensor
from disttrain.checkpoint import model_map
from disttrain.checkpoint.errors import WrongModel
from disttrain.state.layout import ModelLayout, TensorSpec


def _layout(*tensors: TensorSpec) -> ModelLayout:
    return ModelLayout(tensors=tensors)


A, B = a_tensor("a", (3, 2)), a_tensor("b", (4,), first=6)


def test_equal_layouts_have_no_difference() -> None:
    assert model_map.first_mismatch(a_layout(), a_layout()) is None
    model_map.require_same(a_layout(), a_layout())


@pytest.mark.parametrize(
    ("found", "wanted", "said"),
    [
        (
            _layout(A, B),
            _layout(A, a_tensor("b", (5,), first=6)),
            "'b' is float32 of shape [4] in the checkpoint, float32 of shape [5] in the model",
        ),
        (
            _layout(A),
            _layout(a_tensor("a", (3, 2), dtype="float16", vector=placements.FROZEN)),
            "'a' is float32 of shape [3, 2] in the checkpoint, "
            "float16 of shape [3, 2] in the model",
        ),
        (_layout(A, B), _layout(A), "only the checkpoint has 'b' (float32 of shape [4])"),
        (_layout(A), _layout(A, B), "only the model has 'b' (float32 of shape [4])"),
        (
            _layout(B),
            _layout(A),
            "the checkpoint has 'b' (float32 of shape [4]) "
            "where the model has 'a' (float32 of shape [3, 2])",
        ),
        (
            _layout(a_tensor("a", aliases=("c",))),
            _layout(a_tensor("a")),
            "'a' is shared with ['c'] in the checkpoint, with [] in the model",
        ),
        (
            _layout(a_tensor("a")),
            _layout(a_tensor("a", vector=placements.FROZEN)),
            "'a' (float32 of shape [3]) lies in 0/parameters/float32 at 0 in the checkpoint, "
            "in 0/frozen/float32 at 0 in the model",
        ),
    ],
)
def test_the_first_difference_is_named(found: ModelLayout, wanted: ModelLayout, said: str) -> None:
    assert model_map.first_mismatch(found, wanted) == said
    with pytest.raises(WrongModel) as error:
        model_map.require_same(found, wanted)
    assert said in str(error.value)
