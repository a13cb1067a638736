"""Each thread of a replay computes with its own process's number of threads."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch

from disttrain.replay import wires
from disttrain.transport.virtual_time import VirtualTime


@pytest.fixture
def time() -> Iterator[VirtualTime]:
    before = torch.get_num_threads()
    made = VirtualTime()
    yield made
    made.close()
    torch.set_num_threads(before)


def test_what_another_thread_computes_with_changes_nothing(time: VirtualTime) -> None:
    found: dict[int, int] = {}

    def compute(number: int) -> None:
        wires.compute_with(number)
        time.wait(1.0)
        torch.zeros(1).add_(1)
        found[number] = torch.get_num_threads()

    for number in (1, 3):
        time.start(partial(compute, number))
    time.wait(2.0)

    assert found == {1: 1, 3: 3}
