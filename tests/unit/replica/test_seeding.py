import random

import numpy as np
import torch

from disttrain.replica import task_calls


def drawn() -> tuple[float, float, float]:
    return torch.rand(1).item(), random.random(), np.random.random()


def test_the_same_place_in_the_data_draws_the_same_numbers() -> None:
    task_calls.seed_everything(task_calls.batch_seed(7, 1, 2, 3))
    first = drawn()
    task_calls.seed_everything(task_calls.batch_seed(7, 1, 2, 3))

    assert drawn() == first


def test_every_part_of_the_place_matters() -> None:
    places = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0, 0, 11, 1)]

    assert len({task_calls.batch_seed(*place) for place in places}) == len(places)


def test_the_initial_model_is_that_of_a_plain_loop_with_the_same_seed() -> None:
    task_calls.seed_model(5)
    ours = torch.nn.Linear(3, 3).weight
    torch.manual_seed(5)

    assert torch.equal(ours, torch.nn.Linear(3, 3).weight)
