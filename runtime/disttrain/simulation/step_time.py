"""How long a step of a task takes on this machine."""

import statistics
import time

import torch

from disttrain.job import defaults
from disttrain.replay.replica import Learner, Setting
from disttrain.replica.work import WorkItem
from disttrain.task.loss import LossContext, numbers

_STEPS = 8
_ROWS = 1024
_MOST_SECONDS = 20.0


def measure(setting: Setting) -> float:
    """Median seconds of reading a batch, its loss and the gradient. Raises TaskError."""
    learner = Learner(setting, outgoing_buffers=1)
    size = defaults.samples_per_step(setting.spec)
    indices = list(range(size))
    item = WorkItem(lease=1, epoch=0, portion=0, first=0, end_offset=size, indices=indices)
    found: list[float] = []
    began = time.perf_counter()
    # The first one is slower: memory is taken, kernels are chosen.
    while len(found) <= _STEPS and time.perf_counter() - began < _MOST_SECONDS:
        start = time.perf_counter()
        loaded = learner.batches[item]
        loss = learner.loss(loaded.batch, LossContext())
        loss.mean.backward()  # type: ignore[no-untyped-call]
        numbers(loss.mean)
        found.append(time.perf_counter() - start)
    return statistics.median(found[1:] or found)


def measured_flops() -> float:
    """Floating-point operations per second of a dense product, with this process's threads."""
    matrix = torch.randn(_ROWS, _ROWS)
    found = []
    for _ in range(_STEPS):
        began = time.perf_counter()
        torch.mm(matrix, matrix)
        found.append(time.perf_counter() - began)
    return 2.0 * _ROWS**3 / statistics.median(found[1:])
