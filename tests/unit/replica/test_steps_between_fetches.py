"""The rate of a replica's own steps follows the schedule, by samples, as the shards' rate does."""

import torch

from disttrain.job import schedule_kinds
from disttrain.job.length import UNKNOWN
from disttrain.job.schedule import Schedule
from disttrain.job.schedule_kinds import LinearWarmup
from disttrain.replica.accrual import StepsBetweenFetches
from disttrain.state.factors import Factors


def warming_up(samples: int) -> StepsBetweenFetches:
    return StepsBetweenFetches(
        1.0, Schedule(linear_warmup=LinearWarmup(samples=samples)).rates(UNKNOWN)
    )


def moved(steps: StepsBetweenFetches, scale: float = 1.0) -> float:
    """How far one step of 8 samples moves along a gradient of ones."""
    parameters = torch.zeros(1)
    steps.step(parameters, torch.ones(1), scale, 8)
    return -parameters.item()


def test_the_rate_goes_by_the_samples_before_the_step() -> None:
    steps = warming_up(samples=32)

    assert [moved(steps) for _ in range(6)] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]


def test_samples_count_from_those_in_the_parameters_adopted_last() -> None:
    steps = warming_up(samples=64)
    moved(steps)
    steps.adopted(48)

    assert [moved(steps), moved(steps)] == [0.75, 0.875]
    steps.adopted(16)
    assert moved(steps) == 0.25


def test_a_refused_gradient_moves_nothing_and_counts_no_samples() -> None:
    steps = warming_up(samples=32)
    steps.adopted(8)

    assert moved(steps, scale=0.0) == 0.0
    assert moved(steps) == 0.25


def test_a_clipped_gradient_moves_that_much_less() -> None:
    steps = StepsBetweenFetches(0.5, schedule_kinds.full_rate)

    assert moved(steps, scale=0.25) == 0.125


def test_a_rate_of_zero_means_no_local_steps() -> None:
    steps = StepsBetweenFetches(0.0, schedule_kinds.full_rate)

    assert moved(steps) == 0.0


def test_parameters_with_a_rate_of_their_own_move_by_it() -> None:
    factors = (Factors(1, 3, 0.0, 1.0), Factors(3, 4, 3.0, 1.0))
    steps = StepsBetweenFetches(0.5, schedule_kinds.full_rate, factors)
    parameters = torch.zeros(6)

    steps.step(parameters, torch.ones(6), 1.0, 8)

    assert parameters.tolist() == [-0.5, 0.0, 0.0, -1.5, -0.5, -0.5]
