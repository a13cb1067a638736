"""Ranks of one replica in threads of the test, and a group that they form."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from builders.local_training import Batch, LocalTraining
from disttrain.coordinator.protocol.fields import Position
from disttrain.groups import gloo, steps
from disttrain.groups.gloo import GlooGroup
from disttrain.groups.meeting import FolderMeeting
from disttrain.groups.steps import Collective, Leader
from disttrain.job.strategies.local_steps import LocalSteps
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.parts import Part
from disttrain.replica.ranks import LeadingRank, Order, Ranks
from disttrain.replica.strategies.following_rank import FollowingRank
from disttrain.replica.work import WorkItem
from disttrain.task.loss import BatchLoss
from disttrain.transport.memory import OrdinaryMemory

_PATIENCE_SECONDS = 30.0


class _Meeting:
    def __init__(self, count: int) -> None:
        self.given: list[Tensor] = [torch.empty(0)] * count
        self.all_are_there = threading.Barrier(count, timeout=_PATIENCE_SECONDS)


class ThreadGroup(Collective):
    """A thread's side of a group of threads."""

    def __init__(self, meeting: _Meeting, number: int) -> None:
        self._meeting = meeting
        self._number = number

    def sum(self, values: Sequence[int], seconds: float | None = None) -> list[int]:
        del seconds
        tensor = torch.tensor(values)
        self.all_reduce(tensor)
        return [int(value) for value in tensor.tolist()]

    def all_reduce(self, tensor: Tensor) -> None:
        tensor.copy_(torch.stack(self._exchange(tensor)).sum(0))

    def all_gather(self, into: Tensor, own: Tensor) -> None:
        into.copy_(torch.cat(self._exchange(own)).view_as(into))

    def broadcast(self, tensor: Tensor) -> None:
        given = self._exchange(tensor)
        with torch.no_grad():
            tensor.copy_(given[0])

    def _exchange(self, tensor: Tensor) -> list[Tensor]:
        self._meeting.given[self._number] = tensor.detach().clone()
        self._meeting.all_are_there.wait()
        given = list(self._meeting.given)
        self._meeting.all_are_there.wait()
        return given


def thread_groups(count: int) -> list[ThreadGroup]:
    meeting = _Meeting(count)
    return [ThreadGroup(meeting, number) for number in range(count)]


def gloo_groups(folder: Path, count: int) -> list[GlooGroup]:
    """Each is to be used by a thread of its own. The folder is empty or not there."""
    folder.mkdir(exist_ok=True)

    def form(number: int) -> GlooGroup:
        meeting = FolderMeeting(folder, time.sleep)
        return gloo.form(meeting, number, count, "127.0.0.1", lambda: None)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(form, range(count)))


class RankedTraining:
    """A replica of several ranks, whose first one trains as `LocalTraining` does."""

    def __init__(
        self,
        model: Callable[[], nn.Module],
        leading: LocalTraining,
        manifest: LocalSteps,
        ranks: int,
        groups: Sequence[Collective] = (),
    ) -> None:
        """`model`: makes the others', with values that nobody is to see. `groups`: of each rank."""
        self.leading = leading
        self.following: list[nn.Module] = []
        self._ranks, self._batch = ranks, (torch.empty(0), torch.empty(0))
        self._stepped = threading.Semaphore(0)
        self._first, *others = groups or thread_groups(ranks)
        self._leader = Leader(self._first)
        first = Ranks(self._first, Part(0, ranks), self._leader)
        leading.stepper.divide_among(LeadingRank(first, leading.flat))
        self._pool = ThreadPoolExecutor(ranks)
        self._followed = [
            self._follow(Part(number, ranks), group, model(), manifest)
            for number, group in enumerate(others, 1)
        ]

    def step(self, batch: Batch, spoil: Callable[[Tensor], Tensor] = lambda loss: loss) -> None:
        self._batch = batch
        stepper, samples = self.leading.stepper, len(batch[1])
        offset = (stepper.counters.steps + 1) * samples
        stepper.announce(
            WorkItem(
                lease=1,
                epoch=0,
                portion=0,
                first=offset - samples,
                end_offset=offset,
                indices=list(range(samples)),
                lease_samples=10**6,
            )
        )
        gradient = stepper.begin_step()
        loss = _loss(self.leading.model, batch, Part(0, self._ranks))
        assert loss is not None
        spoil(loss.mean).backward()  # type: ignore[no-untyped-call]
        scale = stepper.accrue(gradient, loss, samples, Position(lease=1, offset=offset))
        stepper.push()
        stepper.adopt(gradient, scale, samples)
        for _ in self.following:
            assert self._stepped.acquire(timeout=_PATIENCE_SECONDS)

    def close(self) -> None:
        self._leader.end(0)
        for followed in self._followed:
            assert followed.result(_PATIENCE_SECONDS) == 0
        self._pool.shutdown()
        self.leading.close()

    def _follow(
        self, part: Part, group: Collective, model: nn.Module, manifest: LocalSteps
    ) -> "Future[int]":
        self.following.append(model)
        flat = FlatModel(model, OrdinaryMemory(), torch.device("cpu"), outgoing_buffers=0)
        rank = FollowingRank(Ranks(group, part), flat, manifest.optimizer)

        def compute(_samples: int) -> tuple[BatchLoss | None, int]:
            loss = _loss(model, self._batch, part)
            if loss is not None:
                loss.mean.backward()  # type: ignore[no-untyped-call]
            return loss, len(self._batch[1])

        def step(words: Sequence[int]) -> None:
            rank.step(Order.of(words), compute)
            self._stepped.release()

        return self._pool.submit(partial(steps.follow, group, step))


def _loss(model: nn.Module, batch: Batch, part: Part) -> BatchLoss | None:
    values, labels = batch
    first, end = part.bounds(len(labels))
    if first == end:
        return None
    return BatchLoss(functional.cross_entropy(model(values[first:end]), labels[first:end]))
