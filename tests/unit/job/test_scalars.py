"""Unquoted texts of YAML."""

import pytest

from disttrain.job.document import Scalar, parse_scalar


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("~", None),
        ("NULL", None),
        ("true", True),
        ("False", False),
        ("0", 0),
        ("-12", -12),
        ("+3", 3),
        ("0x1f", 31),
        ("0o17", 15),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("1e-10", 1e-10),
        ("-2.5E+3", -2500.0),
        ("yes", "yes"),
        ("tRUE", "tRUE"),
        ("010", "010"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        ("1.2.3", "1.2.3"),
        ("e5", "e5"),
    ],
)
def test_value_of_an_unquoted_text(text: str, expected: Scalar) -> None:
    value = parse_scalar(text)
    assert (type(value), value) == (type(expected), expected)


@pytest.mark.parametrize("text", [".nan", ".NaN", ".inf", "-.INF", "1e400", "-1e400", "9" * 301])
def test_numbers_that_no_field_can_hold_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must "):
        parse_scalar(text)
