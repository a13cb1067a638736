"""Plans have the shape of what papers measured: the same figures as docs/methods, fewer points."""

import pytest

from builders.paper_networks import CLUSTER_OF_2012, COTS, DISTBELIEF, GPU_OF_2013
from disttrain.parallel import pricing
from disttrain.parallel.pricing import PlannedStep, Purpose

FIRST, *_, LARGEST = DISTBELIEF
SMALL, *_, LARGE = COTS


def gains(steps: list[PlannedStep]) -> dict[int, float]:
    return {step.partitions: steps[0].seconds / step.seconds for step in steps}


def test_a_fully_connected_model_is_fastest_on_eight_machines() -> None:
    counts = DISTBELIEF[FIRST].counts((1, 2, 4, 8, 16, 32))

    training, inference = (
        gains([pricing.step(each, CLUSTER_OF_2012, purpose) for each in counts])
        for purpose in Purpose
    )

    assert training[8] == max(training.values()) == pytest.approx(2.2, abs=0.1)
    assert training[8] > training[16] > training[32]
    assert inference[8] == max(inference.values()) < training[8]


def test_a_large_locally_connected_model_goes_on_gaining() -> None:
    assert DISTBELIEF[LARGEST].parameters() == pytest.approx(1.7e9, rel=0.02)
    counts = DISTBELIEF[LARGEST].counts((1, 16, 81))

    training, inference = (
        gains([pricing.step(each, CLUSTER_OF_2012, purpose) for each in counts])
        for purpose in Purpose
    )

    for found in (training, inference):
        assert 1.0 < found[16] < found[81] < 81 / 16 * found[16]
    assert training[81] > 12.0


def test_gpus_gain_more_with_more_parameters() -> None:
    small, large = (
        gains([pricing.step(each, GPU_OF_2013) for each in COTS[name].counts((1, 4, 16))])
        for name in (SMALL, LARGE)
    )

    assert small[4] < large[4] < 4.0
    assert small[16] < large[16] / 2 < 8.0
