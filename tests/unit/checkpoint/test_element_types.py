"""Narrowing: PyTorch is the reference."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from disttrain.checkpoint.element_types import TYPES, OutOfRange

FLOATS = st.lists(st.floats(width=32), min_size=1, max_size=20)


@given(FLOATS)
def test_bfloat16_is_rounded_as_in_torch(numbers: list[float]) -> None:
    values = np.array(numbers, np.float32)
    ours = torch.from_numpy(TYPES["bfloat16"].narrow(values).view(np.int16)).view(torch.bfloat16)
    assert torch.equal(ours.nan_to_num(7), torch.from_numpy(values).bfloat16().nan_to_num(7))
    assert torch.equal(ours.isnan(), torch.from_numpy(values).isnan())


@given(FLOATS)
def test_float16_is_rounded_as_in_torch(numbers: list[float]) -> None:
    values = np.array(numbers, np.float32)
    ours = torch.from_numpy(TYPES["float16"].narrow(values))
    assert torch.equal(ours.nan_to_num(7), torch.from_numpy(values).half().nan_to_num(7))


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uint8"])
def test_whole_numbers_keep_their_values_or_are_refused(name: str) -> None:
    limits = np.iinfo(name)
    values = np.array([limits.min, 0, 5, limits.max], np.int64)
    assert TYPES[name].narrow(values).tolist() == values.tolist()
    if name != "int64":
        with pytest.raises(OutOfRange, match=f"do not fit into {name}"):
            TYPES[name].narrow(np.array([int(limits.max) + 1], np.int64))
        with pytest.raises(OutOfRange):
            TYPES[name].narrow(np.array([int(limits.min) - 1], np.int64))


def test_bool_is_zero_or_one() -> None:
    assert TYPES["bool"].narrow(np.array([0, 1, 7], np.int64)).tolist() == [0, 1, 1]


@pytest.mark.parametrize("name", ["float64", "float32", "float16"])
@given(numbers=st.lists(st.floats(), min_size=1, max_size=20))
def test_double_precision_is_rounded_once_to_the_models_own_type(
    name: str, numbers: list[float]
) -> None:
    values = np.array(numbers, np.float64)
    ours = torch.from_numpy(TYPES[name].narrow(values))
    wanted = torch.from_numpy(values).to(getattr(torch, name))
    assert torch.equal(ours.nan_to_num(7), wanted.nan_to_num(7))
    assert torch.equal(ours.isnan(), wanted.isnan())
