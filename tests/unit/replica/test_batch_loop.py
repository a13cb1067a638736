import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from builders import placements
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import NO_PROGRESS, MemberId
from disttrain.coordinator.protocol.messages import Acknowledged, GroupDone, GroupLease, Work
from disttrain.job.strategy_kind import Formats, Precision
from disttrain.parameter_server.client import (
    FetchClient,
    FetchResult,
    PushClient,
    Stage,
    Version,
)
from disttrain.parameter_server.errors import EvaluationOver
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.connection import Connection, Sides
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.groups import GroupStaging, HeldGroups
from disttrain.replica.pipeline import Loaded
from disttrain.replica.strategies.sandblaster import BatchLoop, TrialPoint
from disttrain.replica.work import WorkItem
from disttrain.state.fragments import WHOLE, Fragment
from disttrain.state.vector import Vector
from disttrain.task import checks
from disttrain.task.errors import LossError, ModelError
from disttrain.task.loss import BatchLoss, Loss, LossContext
from disttrain.transport.header import Role
from disttrain.transport.interface import Buffer
from disttrain.transport.memory import OrdinaryMemory

VECTORS = {
    Precision.FLOAT32: (placements.PARAMETERS, placements.TRIAL),
    Precision.FLOAT64: (placements.PARAMETERS_FLOAT64, placements.TRIAL_FLOAT64),
}
SECONDS = 20.0


class Shards(PushClient, FetchClient):
    """Both sides of a client at once: the point of every evaluation up to the newest one."""

    def __init__(self, point: Tensor) -> None:
        self.point = point
        self.under_way = {1}
        self.staged: dict[int, Tensor] = {}
        self.trials: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    shards = (0,)
    all_shards = 1

    def stage(self, stage: Stage) -> tuple[int, ...]:
        assert self.gate.wait(SECONDS)
        self._check(stage.evaluation)
        self.staged[stage.attempt] = tensor(stage.gradient, self.point.dtype).clone()
        return (7,)

    def upload(self, values: Mapping[Vector, Buffer], shards: Collection[int]) -> None:
        """Nothing: the point is given."""

    def fetch(
        self, into: Mapping[Vector, Buffer], fragment: Fragment = WHOLE, *, steps: int = 0
    ) -> FetchResult:
        del fragment, steps
        for buffer in into.values():
            tensor(buffer, self.point.dtype).copy_(self.point)
        return FetchResult(versions=(Version(1, 1),), samples=0, buffers_changed=False)

    def fetch_trial(self, evaluation: int, trial: Vector, into: Buffer) -> None:
        assert trial in {placements.TRIAL, placements.TRIAL_FLOAT64}
        self._check(evaluation)
        self.trials.append(evaluation)
        tensor(into, self.point.dtype).copy_(self.point + evaluation)

    def _check(self, evaluation: int) -> None:
        if evaluation not in self.under_way:
            raise EvaluationOver

    def stop(self) -> None:
        self.gate.set()

    def close(self) -> None:
        """Nothing."""


class Coordinator:
    """Has everything at once."""

    def __init__(self) -> None:
        self.done: list[GroupDone] = []
        self.told = threading.Event()

    def request(self, request: messages.Request) -> Future[messages.Reply]:
        assert isinstance(request, GroupDone)
        self.done.append(request)
        self.told.set()
        future: Future[messages.Reply] = Future()
        future.set_result(Acknowledged())
        return future


class Batches:
    """A pipeline that gives what it was told."""

    def __init__(self) -> None:
        self.loaded: list[Loaded] = []

    def next(self, timeout: float) -> Loaded | None:
        del timeout
        return self.loaded.pop(0) if self.loaded else None

    def drop(self) -> None:
        self.loaded.clear()


def tensor(buffer: Buffer, dtype: torch.dtype) -> Tensor:
    return torch.frombuffer(buffer.view, dtype=dtype)


class Replica:
    """A loop with everything around it inside the test."""

    def __init__(self, model: nn.Module, precision: Precision = Precision.FLOAT64) -> None:
        self.model = model.double() if precision is Precision.FLOAT64 else model
        flat = FlatModel(
            self.model,
            OrdinaryMemory(),
            torch.device("cpu"),
            outgoing_buffers=0,
            formats=Formats(precision),
        )
        self.vector, self.trial = VECTORS[precision]
        self.shards = Shards(flat.parameters.detach().clone())
        self.coordinator, self.pipeline = Coordinator(), Batches()
        sides = Sides(push=self.shards, fetch=self.shards)
        self.connection = Connection(flat, sides, Cancellation())
        member = MemberId(role=Role.REPLICA, index=0, incarnation=1)
        self.held = HeldGroups(member, lambda: NO_PROGRESS, lambda _: 3)
        self.staging = GroupStaging(self.connection, self.coordinator.request, member, self.held)
        self.point = TrialPoint(self.connection)
        loop = BatchLoop(self.loss, self.pipeline, self.staging, self.point, self.held, 5)  # type: ignore[arg-type]
        self.loop = loop

    def loss(self, batch: Any, context: LossContext) -> BatchLoss:
        del context
        return BatchLoss(functional.mse_loss(self.model(batch[0]), batch[1]))

    def take(self, attempt: int, evaluation: int = 1, portions: int = 2) -> GroupLease:
        """A group arrives, and its data are read."""
        group = GroupLease(
            attempt=attempt,
            group=attempt,
            evaluation=evaluation,
            portions=(0, portions),
            shards=(7,),
        )
        self.held.hold(Work(groups=(group,)))
        while (lease := self.held.take()) is not None:
            item = WorkItem(lease.id, 0, lease.portion, 0, 3, [0, 1, 2])
            batch = a_batch(lease.portion, self.shards.point.dtype)
            self.pipeline.loaded.append(Loaded(item, batch))
        return group

    def run_until(self, holds: Callable[[], bool]) -> None:
        timer = threading.Timer(SECONDS, self.connection.cancellation.cancel)
        timer.start()
        self.loop.train_until(lambda: holds() or self.connection.cancellation.is_cancelled)
        timer.cancel()
        assert holds()

    def gradient_at(self, evaluation: int, portions: int) -> Tensor:
        """What the group's gradient has to be."""
        total = torch.zeros_like(self.shards.point)
        flat = self.shards.point + evaluation
        for portion in range(portions):
            twin = a_line().to(flat.dtype)
            nn.utils.vector_to_parameters(flat, twin.parameters())
            inputs, wanted = a_batch(portion, flat.dtype)
            (functional.mse_loss(twin(inputs), wanted) * 3).backward()  # type: ignore[no-untyped-call]
            total += torch.cat(
                [one.grad.flatten() for one in twin.parameters() if one.grad is not None]
            )
        return total


def a_line() -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(4, 2)


def a_batch(portion: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(portion)
    inputs = torch.randn(3, 4, generator=generator, dtype=dtype)
    return inputs, torch.randn(3, 2, generator=generator, dtype=dtype)


@pytest.fixture
def replica() -> Iterator[Replica]:
    made = Replica(a_line())
    yield made
    made.connection.close()


@pytest.mark.parametrize("precision", list(Precision))
def test_a_group_is_the_sum_of_its_samples_gradients_at_the_evaluations_point(
    precision: Precision,
) -> None:
    replica = Replica(a_line(), precision)
    replica.take(attempt=9, portions=3)
    replica.run_until(lambda: replica.staging.groups == 1)

    (told,) = replica.coordinator.done
    assert torch.equal(replica.shards.staged[9], replica.gradient_at(1, portions=3))
    assert (told.result.attempt, told.result.evaluation, told.result.samples) == (9, 1, 9)
    assert told.result.shards == (7,)
    assert told.result.loss_sum > 0
    replica.connection.close()


def test_the_point_is_fetched_once_per_evaluation(replica: Replica) -> None:
    replica.take(1)
    replica.take(2)
    replica.run_until(lambda: replica.staging.groups == 2)
    replica.shards.under_way = {2}
    replica.take(3, evaluation=2)
    replica.run_until(lambda: replica.staging.groups == 3)

    assert replica.shards.trials == [1, 2]
    assert torch.equal(replica.shards.staged[2], replica.shards.staged[1])
    assert torch.equal(replica.shards.staged[3], replica.gradient_at(2, portions=2))
    assert replica.held.attempts == ()


def test_groups_of_an_evaluation_that_is_over_are_dropped(replica: Replica) -> None:
    replica.shards.under_way = {2}
    replica.take(1)
    replica.run_until(lambda: replica.held.attempts == ())

    replica.take(2, evaluation=2)
    replica.run_until(lambda: replica.staging.groups == 1)

    assert list(replica.shards.staged) == [2]


def test_an_evaluation_that_ends_while_a_gradient_is_on_its_way_is_dropped(
    replica: Replica,
) -> None:
    replica.shards.gate.clear()
    replica.take(1)
    replica.run_until(lambda: not replica.pipeline.loaded and replica.loop.counters.steps == 2)
    replica.shards.under_way = {2}
    replica.shards.gate.set()

    replica.run_until(lambda: replica.held.attempts == ())
    assert replica.coordinator.done == []


def test_the_coordinator_is_told_while_the_compute_thread_does_something_else(
    replica: Replica,
) -> None:
    replica.shards.gate.clear()
    replica.take(1)
    replica.run_until(lambda: replica.loop.counters.steps == 2)

    replica.shards.gate.set()
    assert replica.coordinator.told.wait(SECONDS)
    assert replica.staging.groups == 0
    replica.run_until(lambda: replica.staging.groups == 1)


def test_no_more_gradients_are_on_their_way_than_there_is_memory_for(replica: Replica) -> None:
    replica.shards.gate.clear()
    for attempt in (1, 2, 3):
        replica.take(attempt)
    replica.run_until(lambda: replica.loop.counters.steps == 4)
    replica.run_until(lambda: replica.loop.counters.push_seconds > 0)
    assert replica.loop.counters.steps == 4

    replica.shards.gate.set()
    replica.run_until(lambda: replica.staging.groups == 3)


def test_an_evaluation_on_other_data_between_two_portions_changes_nothing(
    replica: Replica,
) -> None:
    replica.take(1)
    replica.run_until(lambda: replica.loop.counters.steps == 1)
    replica.point.fetch_now()
    parameters = torch.cat([one.detach().flatten() for one in replica.model.parameters()])
    replica.run_until(lambda: replica.staging.groups == 1)

    assert torch.equal(parameters, replica.shards.point)
    assert torch.equal(replica.shards.staged[1], replica.gradient_at(1, portions=2))
    assert replica.shards.trials == [1, 1]


def test_a_wait_without_groups_is_no_wait_for_data(replica: Replica) -> None:
    looks = iter(range(100))
    replica.loop.train_until(lambda: next(looks) == 99)
    assert replica.loop.counters.data_seconds == 0

    replica.take(1)
    replica.run_until(lambda: replica.staging.groups == 1)
    assert replica.loop.counters.data_seconds > 0


def test_draining_waits_for_what_is_on_its_way_and_drops_the_rest(replica: Replica) -> None:
    replica.shards.gate.clear()
    replica.take(1)
    replica.take(2)
    replica.run_until(lambda: replica.loop.counters.steps == 3)
    threading.Timer(0.05, replica.shards.gate.set).start()

    replica.loop.drain()

    assert [told.result.attempt for told in replica.coordinator.done] == [1]
    assert replica.staging.samples == 6


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_loss_that_clears_the_gradients_of_other_portions_is_refused(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, *, set_to_none: bool
) -> None:
    def clearing(batch: Any, context: LossContext) -> BatchLoss:
        replica.model.zero_grad(set_to_none=set_to_none)
        return replica.loss(batch, context)

    monkeypatch.setattr(replica.loop, "_loss", clearing)
    replica.take(1)

    with pytest.raises(LossError, match=r"torch\.autograd\.grad\(\)"):
        replica.run_until(lambda: replica.staging.groups == 1)


def test_a_frozen_parameter_that_the_loss_changes_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 2))
    model[1].requires_grad_(requires_grad=False)
    replica = Replica(model)
    replica.loop.begin()
    model.get_parameter("1.weight").data.add_(1.0)
    replica.take(1)

    with pytest.raises(ModelError, match=r"'1\.weight', which is frozen"):
        replica.run_until(lambda: replica.staging.groups == 1)
    replica.connection.close()


def test_a_frozen_parameter_that_changed_since_the_last_look_is_told_at_the_end() -> None:
    model = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 2))
    model[1].requires_grad_(requires_grad=False)
    replica = Replica(model)
    replica.loop.begin()
    replica.take(1, portions=3)
    replica.run_until(lambda: replica.staging.groups == 1)
    model.get_parameter("1.weight").data.add_(1.0)

    with pytest.raises(ModelError, match=r"'1\.weight', which is frozen"):
        replica.loop.drain()
    replica.connection.close()


def test_sums_with_counts_become_the_sum_of_a_group_and_its_count(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of tokens, of which a portion has the more the later it comes."""
    counts = iter((2.0, 0.0, 7.0))

    def loss(batch: Any, context: LossContext) -> BatchLoss:
        count = next(counts)
        return checks.check_loss(Loss.mean(replica.loss(batch, context).mean, count))

    monkeypatch.setattr(replica.loop, "_loss", loss)
    replica.take(1, portions=3)
    replica.run_until(lambda: replica.staging.groups == 1)

    (told,) = replica.coordinator.done
    assert (told.result.samples, told.result.count) == (9, 9.0)
    first, second, third = (replica.gradient_at(1, portions) for portions in (1, 2, 3))
    wanted = (2.0 * first + 7.0 * (third - second)) / 3
    assert torch.allclose(replica.shards.staged[1], wanted)


class Drawing(nn.Module):
    """Draws, and counts how often in a buffer that its output depends on."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 2))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        return functional.dropout(inputs) @ self.weight + self.calls


def drawn_after(others: int) -> Tensor:
    """The gradient of a group that is computed after so many others."""
    replica = Replica(Drawing())
    for attempt in range(others):
        replica.take(100 + attempt)
    replica.run_until(lambda: replica.staging.groups == others)
    replica.take(1)
    replica.run_until(lambda: replica.staging.groups == others + 1)
    replica.connection.close()
    return replica.shards.staged[1]


def test_what_is_drawn_and_counted_depends_on_the_portion_alone() -> None:
    assert torch.equal(drawn_after(0), drawn_after(2))
