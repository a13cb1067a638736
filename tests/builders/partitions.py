"""Partitions of a replica as threads of the test, which give each other tensors in memory."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

import torch
from torch import Tensor

from disttrain.parallel.communicator import Communicator, Exchange

PATIENCE_SECONDS = 60.0
Made = TypeVar("Made")


class Meeting:
    """What threads have in common."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.boxes = {
            (source, to): SimpleQueue[Tensor]() for source in range(size) for to in range(size)
        }
        self.barrier = threading.Barrier(size)
        self.given: dict[int, Tensor] = {}


class Thread(Communicator):
    def __init__(self, rank: int, meeting: Meeting) -> None:
        super().__init__(rank, meeting.size)
        self._meeting = meeting

    def _exchange(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> Exchange:
        for to, tensor in outgoing.items():
            assert tensor.is_contiguous()
            self._meeting.boxes[self.rank, to].put(tensor.detach().clone())
        return Arriving(self, incoming)

    def take(self, source: int) -> Tensor:
        return self._meeting.boxes[source, self.rank].get(timeout=PATIENCE_SECONDS)

    def _reduce(self, tensor: Tensor, *, is_sum: bool) -> Tensor:
        meeting = self._meeting
        meeting.given[self.rank] = tensor.detach().clone()
        meeting.barrier.wait(PATIENCE_SECONDS)
        all_of_them = torch.stack([meeting.given[rank] for rank in range(self.size)])
        meeting.barrier.wait(PATIENCE_SECONDS)
        return all_of_them.sum(0) if is_sum else all_of_them.amax(0)


class Arriving(Exchange):
    def __init__(self, thread: Thread, incoming: Mapping[int, Tensor]) -> None:
        self._thread, self._incoming = thread, incoming

    def wait(self) -> None:
        for source, into in self._incoming.items():
            sent = self._thread.take(source)
            assert (sent.shape, sent.dtype) == (into.shape, into.dtype)
            into.copy_(sent)


def in_partitions(size: int, work: Callable[[Communicator], Made]) -> list[Made]:
    """What each of so many partitions makes, by rank; the first error is raised."""
    meeting = Meeting(size)

    def one(rank: int) -> Made:
        try:
            return work(Thread(rank, meeting))
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        running = [pool.submit(one, rank) for rank in range(size)]
        errors = [each.exception() for each in running]
    for error in sorted(
        (each for each in errors if each), key=lambda e: isinstance(e, threading.BrokenBarrierError)
    ):
        raise error
    return [each.result() for each in running]
