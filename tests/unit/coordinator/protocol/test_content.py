"""Which examples count as the same, and what is said of others."""

from dataclasses import replace

import pytest

from disttrain.coordinator.protocol.content import Example, first_difference

ONE = Example(split="train", index=7, digest="ab", length=10.0, sum=2.0)


def test_what_is_alike_has_no_difference() -> None:
    assert not first_difference([ONE], [ONE])


def test_rounding_of_another_processor_is_no_difference() -> None:
    assert not first_difference([ONE], [replace(ONE, length=10.001, sum=2.001)])


@pytest.mark.parametrize("change", [{"digest": "cd"}, {"length": 10.1}, {"sum": 2.1}])
def test_other_content_is_told_with_its_place_and_both_values(change: dict[str, object]) -> None:
    found = first_difference([ONE], [replace(ONE, **change)])  # type: ignore[arg-type]

    assert found.startswith("train example 7 is ")
    assert f"{ONE} in the job" in found


def test_what_one_side_alone_has_read_says_nothing() -> None:
    assert not first_difference([ONE], [replace(ONE, index=8, digest="cd")])
    assert not first_difference([], [ONE])
