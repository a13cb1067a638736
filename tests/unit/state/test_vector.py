"""How vectors are written, and what is taken for one."""

import pytest

from builders import placements
from disttrain.state.vector import FORMER_NAMES, Vector, parse
from disttrain.transport.header import ElementType

TEXTS = {
    "0/parameters/float32": placements.PARAMETERS,
    "0/buffers/int64": placements.BUFFERS_INT64,
    "12/sum_of_squares/float64": Vector(12, "sum_of_squares", ElementType.FLOAT64),
}


@pytest.mark.parametrize(("text", "vector"), TEXTS.items())
def test_a_text_names_one_vector(text: str, vector: Vector) -> None:
    assert parse(text) == vector
    assert str(vector) == text


def test_journals_and_checkpoints_of_earlier_versions_named_them_otherwise() -> None:
    assert parse("PARAMETERS") == parse(1) == placements.PARAMETERS
    assert parse("FROZEN_FLOAT64") == parse(8) == placements.FROZEN_FLOAT64
    assert parse("PARAMETERS_FLOAT64.s3") == placements.PARAMETERS_FLOAT64.beside("s3")
    assert [parse(number) for number in range(1, 10)] == list(FORMER_NAMES.values())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "parameters",
        "0/parameters",
        "0/parameters/float16",
        "0/parameters/bytes",
        "-1/parameters/float32",
        "00/parameters/float32",
        "123456/parameters/float32",
        "0/../float32",
        "0/Parameters/float32",
        "0/parameters/float32\n",
        "NONE",
        "PARAMETERS.",
        0,
        10,
        True,
        1.0,
        None,
        ["0", "parameters", "float32"],
    ],
)
def test_everything_else_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="names no vector"):
        parse(text)
