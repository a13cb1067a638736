from typing import Any

from disttrain.job import limits


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_a_value_within_the_limits_is_fine() -> None:
    assert limits.exceeded({"a": [1] * (limits.MAX_VALUES - 2)}) is None
    assert limits.exceeded(nested(limits.MAX_DEPTH)) is None


def test_too_deep_and_too_many_are_told() -> None:
    assert limits.exceeded(nested(limits.MAX_DEPTH + 1)) == limits.TOO_DEEP
    assert limits.exceeded(nested(100_000)) == limits.TOO_DEEP
    assert limits.exceeded({"a": [1] * limits.MAX_VALUES}) == limits.TOO_MANY
