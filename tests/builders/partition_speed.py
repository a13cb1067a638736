"""How fast two partitions on this machine compute and give each other tensors."""

import statistics
import time

import torch

from disttrain.parallel.communicator import Communicator
from disttrain.parallel.pricing import Machine
from disttrain.simulation import step_time

_TIMES = 20
_NUMBERS = 250_000
_BYTES = 4 * _NUMBERS


def machine_here(peers: Communicator) -> Machine:
    """As `disttrain plan` would be told of it: one thread, and the others' sockets."""
    other, seconds = 1 - peers.rank, {}
    for numbers in (1, _NUMBERS):
        tensor, times = torch.zeros(numbers), []
        for _ in range(_TIMES):
            began = time.perf_counter()
            peers.exchange({other: tensor}, {other: torch.empty(numbers)}).wait()
            times.append(time.perf_counter() - began)
        seconds[numbers] = statistics.median(times)
    return Machine(
        flops_per_second=step_time.measured_flops(),
        bytes_per_second=_BYTES / max(seconds[_NUMBERS] - seconds[1], 1e-6),
        latency_seconds=seconds[1],
    )
