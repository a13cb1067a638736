from typing import Any

from disttrain.job import document


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_a_value_within_the_limits_is_fine() -> None:
    assert document.exceeded({"a": [1] * (document.MAX_VALUES - 2)}) is None
    assert document.exceeded(nested(document.MAX_DEPTH)) is None


def test_too_deep_and_too_many_are_told() -> None:
    assert document.exceeded(nested(document.MAX_DEPTH + 1)) == document.TOO_DEEP
    assert document.exceeded(nested(100_000)) == document.TOO_DEEP
    assert document.exceeded({"a": [1] * document.MAX_VALUES}) == document.TOO_MANY
