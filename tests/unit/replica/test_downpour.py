import copy
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from builders import placements
from builders.downpours import a_downpour
from builders.jobs import a_job
from builders.networks import a_network, a_normalised_network
from builders.parameter_servers import OneShard
from disttrain.coordinator.protocol.fields import Position
from disttrain.job.strategies import downpour
from disttrain.parameter_server.client import FetchResult
from disttrain.replica import accrual, gradient_check, task_calls
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.connection import Connection, Sides
from disttrain.replica.downpour import Downpour
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.pace import NeverWaits, Pace
from disttrain.replica.pipeline import Loaded
from disttrain.replica.stepper import TrainingLoop
from disttrain.replica.work import LostLeases, WorkItem
from disttrain.state.fragments import WHOLE, Fragment
from disttrain.state.vector import Vector
from disttrain.task.errors import ModelError
from disttrain.task.loss import BatchLoss, LossContext
from disttrain.transport.interface import Buffer
from disttrain.transport.memory import OrdinaryMemory

AWAITED = a_downpour(waits_for_answers=True, local_learning_rate=0.05)


_NEVER_WAITS = NeverWaits()


class AlwaysWaits(NeverWaits):
    """Each step that fetches ends with its push answered and fresh parameters."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def fetch_after_seconds(self) -> None:
        self.told.append("begun")

    def computed(self) -> None:
        self.told.append("computed")

    def ended(self, fetch_seconds: float) -> None:
        del fetch_seconds
        self.told.append("ended")


class Trained:
    """A loop on a model, a parameter server inside the test, and what connects them."""

    def __init__(
        self,
        model: nn.Module,
        server: OneShard,
        config: downpour.Downpour,
        *,
        in_flight: int = 0,
        pace: Pace | None = _NEVER_WAITS,
    ) -> None:
        """`pace`: None is the one that a job has."""
        self.model = model
        self.cancellation = Cancellation()
        flat = FlatModel(
            model, OrdinaryMemory(), torch.device("cpu"), outgoing_buffers=in_flight + 1
        )
        self.connection = Connection(flat, Sides(push=server, fetch=server), self.cancellation)
        self.connection.upload([0])
        self.loop = Downpour(self.connection, config, pace=pace)
        self.loop.begin(self.connection.first_fetch(meanwhile=lambda: None))

    def step(self, loaded: Loaded, first: Callable[[], object] = lambda: None) -> None:
        """A step whose loss does something `first`."""
        gradient = self.loop.begin_step()
        first()
        loss = functional.cross_entropy(self.model(loaded.batch[0]), loaded.batch[1])
        loss.backward()  # type: ignore[no-untyped-call]
        self.finish(gradient, BatchLoss(loss), loaded.item)

    def finish(self, gradient: Tensor, loss: BatchLoss | None, item: WorkItem) -> None:
        """What comes after backward."""
        scale = self.loop.accrue(gradient, loss, 8, item.position)
        self.loop.push()
        self.loop.adopt(gradient, scale, 8)


class Given:
    """A data pipeline with these batches."""

    dry = False

    def __init__(self, batches: Iterable[Loaded]) -> None:
        self.left = list(batches)

    def next(self, timeout: float) -> Loaded | None:
        del timeout
        return self.left.pop(0)

    def drop(self) -> None:
        self.left.clear()


def batches(count: int) -> Iterator[Loaded]:
    generator = torch.Generator().manual_seed(1)
    for number in range(count):
        x = torch.randn(8, 1, 8, 8, generator=generator)
        y = torch.randint(0, 7, (8,), generator=generator)
        item = WorkItem(1, 0, 0, number * 8, number * 8 + 8, list(range(8)))
        yield Loaded(item, (x, y))


def plainly(model: nn.Module, steps: int, clip: float | None = None) -> None:
    """The same training as a loop without DistTrain."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for loaded in batches(steps):
        x, y = loaded.batch
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_sgd_with_answers_awaited_is_bit_identical_to_a_plain_loop() -> None:
    model = a_network()
    plain = copy.deepcopy(model)
    plainly(plain, 200)
    trained = Trained(model, OneShard(0.05), AWAITED)

    for loaded in batches(200):
        trained.step(loaded)
    trained.loop.fetch_now()

    assert torch.equal(flat(model), flat(plain))
    trained.connection.close()


def test_a_loss_is_told_where_the_job_is_and_the_seed_of_its_batch() -> None:
    told: list[LossContext] = []
    model = a_network()

    def loss(batch: Any, context: LossContext) -> BatchLoss:
        told.append(context)
        return BatchLoss(functional.cross_entropy(model(batch[0]), batch[1]))

    trained = Trained(model, OneShard(0.05), AWAITED)
    trained.step(next(batches(1)))

    given = [
        loaded._replace(item=loaded.item._replace(epoch=7, portion=portion))
        for portion, loaded in enumerate(batches(3))
    ]
    source = Given(given)
    loop = TrainingLoop(trained.loop, loss, source, LostLeases(frozenset), 5)
    loop.train_until(lambda: not source.left)

    assert [(context.step, context.epoch, context.samples) for context in told] == [
        (1, 7, 8),
        (2, 7, 16),
        (3, 7, 24),
    ]
    seeds = [task_calls.batch_seed(5, 7, portion, portion * 8) for portion in range(3)]
    assert [context.seed for context in told] == seeds
    trained.connection.close()


def test_batch_norm_with_answers_awaited_equals_a_plain_loop() -> None:
    model = a_normalised_network()
    plain = copy.deepcopy(model)
    plainly(plain, 30)
    trained = Trained(model, OneShard(0.05), AWAITED)

    for loaded in batches(30):
        trained.step(loaded)
    trained.loop.fetch_now()

    ours, theirs = model.state_dict(), plain.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert theirs["2.num_batches_tracked"] == 30
    trained.connection.close()


def test_the_first_push_holds_one_gradient_and_the_others_push_every() -> None:
    server = OneShard(0.05)
    trained = Trained(a_network(), server, a_downpour(push_every=3), in_flight=1)

    for loaded in batches(8):
        trained.step(loaded)
    trained.loop.flush()

    assert [push.samples for push in server.pushes] == [8, 24, 24, 8]
    assert [push.lease_offset for push in server.pushes] == [8, 32, 56, 64]
    trained.connection.close()


def test_a_step_whose_loss_is_not_known_counts_for_no_loss() -> None:
    trained = Trained(a_network(), OneShard(0.05), a_downpour(), in_flight=1)
    batch = next(batches(1))
    trained.step(batch)
    loss = trained.loop.counters.loss_sum

    trained.finish(trained.loop.begin_step(), None, batch.item)

    counters = trained.loop.counters
    assert (counters.steps, counters.loss_steps, counters.loss_sum) == (2, 1, loss)
    trained.connection.close()


@pytest.mark.parametrize("push_every", [1, 2])
def test_a_loss_that_clears_the_gradients_is_trained_like_any_other(push_every: int) -> None:
    model = a_network()
    plain = copy.deepcopy(model)
    plainly(plain, 6)
    server = OneShard(0.05)
    config = a_downpour(push_every=push_every, fetch_every=push_every, local_learning_rate=0.05)
    trained = Trained(model, server, config, in_flight=2)
    server.fetch_gate.clear()

    for loaded in batches(6):
        trained.step(loaded, first=model.zero_grad)

    assert torch.equal(flat(model), flat(plain))
    trained.loop.flush()
    assert torch.allclose(server.values[placements.PARAMETERS], flat(plain), atol=1e-6)
    trained.connection.close()


@pytest.mark.parametrize("when", ["step", "flush", "fetch_now"])
def test_a_frozen_parameter_that_the_loss_changes_ends_the_training_by_name(when: str) -> None:
    model = a_network()
    last = model[5]
    last.requires_grad_(requires_grad=False)
    trained = Trained(model, OneShard(0.05), a_downpour(), in_flight=1)
    steps = batches(3)
    trained.step(next(steps))
    trained.step(next(steps))

    def change() -> None:
        last.get_parameter("bias").data.add_(1.0)

    # The third step is none that is looked after.
    trained.step(next(steps), first=change) if when != "step" else change()

    def go_on() -> None:
        for loaded in batches(2):
            trained.step(loaded)

    acts: dict[str, Callable[[], object]] = {
        "step": go_on,
        "flush": trained.loop.flush,
        "fetch_now": trained.loop.fetch_now,
    }
    with pytest.raises(ModelError, match=r"'5\.bias', which is frozen"):
        acts[when]()
    trained.connection.close()


def test_accrued_gradients_are_sums() -> None:
    once, accrued = OneShard(1.0), OneShard(1.0)
    for server, config in (
        (once, a_downpour(push_every=1, fetch_every=100)),
        (accrued, a_downpour(push_every=4, fetch_every=100)),
    ):
        trained = Trained(a_network(), server, config, in_flight=1)
        # Never answered, so that all gradients are those of the initial parameters.
        server.fetch_gate.clear()
        for loaded in batches(9):
            trained.step(loaded)
        trained.loop.flush()
        server.fetch_gate.set()
        trained.connection.close()

    moved = (once.values[placements.PARAMETERS], accrued.values[placements.PARAMETERS])
    assert torch.allclose(*moved, atol=1e-6)
    assert len(accrued.pushes) == 3


def test_only_steps_that_fetch_wait_for_answers_and_are_measured() -> None:
    server, pace = OneShard(0.05), AlwaysWaits()
    trained = Trained(a_network(), server, a_downpour(fetch_every=3), in_flight=3, pace=pace)
    steps = list(batches(4))

    trained.step(steps[0])
    assert (len(server.pushes), trained.loop.samples) == (1, 8)
    server.gate.clear()
    trained.step(steps[1])
    trained.step(steps[2])
    assert len(server.pushes) == 1
    server.gate.set()
    trained.step(steps[3])

    assert (len(server.pushes), trained.loop.samples) == (4, 32)
    assert pace.told == ["begun", "computed", "ended"] * 2
    trained.connection.close()


def test_a_job_begins_with_steps_that_wait() -> None:
    server = OneShard(0.05)
    trained = Trained(a_network(), server, a_downpour(), in_flight=1, pace=None)

    for number, loaded in enumerate(batches(4), start=1):
        trained.step(loaded)
        assert (len(server.pushes), trained.loop.samples) == (number, 8 * number)

    trained.connection.close()


def test_a_step_is_computed_when_its_gradient_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = AlwaysWaits()
    trained = Trained(a_network(), OneShard(0.05), a_downpour(), in_flight=1, pace=pace)
    judge = gradient_check.check

    def check(squared_norm: float, loss: float, clip_norm: float | None) -> float:
        pace.told.append("judged")
        return judge(squared_norm, loss, clip_norm)

    monkeypatch.setattr(gradient_check, "check", check)
    trained.step(next(batches(1)))

    assert pace.told == ["begun", "judged", "computed", "ended"]
    trained.connection.close()


def test_a_local_step_is_taken_while_no_fetch_arrives() -> None:
    model = a_network()
    plain = copy.deepcopy(model)
    plainly(plain, 5)
    server = OneShard(0.05)
    trained = Trained(
        model, server, a_downpour(fetch_every=100, local_learning_rate=0.05), in_flight=1
    )
    server.fetch_gate.clear()

    for loaded in batches(5):
        trained.step(loaded)

    assert torch.equal(flat(model), flat(plain))
    server.fetch_gate.set()
    trained.connection.close()


def test_computing_is_a_step_without_its_waits_and_waits_between_steps_are_none_of_it() -> None:
    trained, now = Trained(a_network(), OneShard(0.05), a_downpour()), [0.0]
    pushes, source = trained.connection.pushes, Given(batches(3))
    trained.cancellation.clock = lambda: now[0]

    def loss(batch: Any, context: LossContext) -> BatchLoss:
        """Computes for two seconds, and waits for three."""
        del context
        now[0] += 5.0
        pushes.waited_seconds += 3.0
        return BatchLoss(functional.cross_entropy(trained.model(batch[0]), batch[1]))

    loop = TrainingLoop(trained.loop, loss, source, LostLeases(frozenset), 5)
    loop.train_until(lambda: not source.left)
    # As before the first step, in an evaluation, or for the last answers.
    pushes.waited_seconds += 100.0

    report = trained.loop.report(LostLeases(frozenset))
    assert report.compute_seconds == pytest.approx(6.0)
    assert report.push_seconds == pytest.approx(109.0, abs=1.0)
    trained.connection.close()


def test_without_a_local_rate_parameters_change_only_by_fetching() -> None:
    model = a_network()
    before = flat(model)
    server = OneShard(0.05)
    trained = Trained(model, server, a_downpour(fetch_every=100), in_flight=1)
    server.fetch_gate.clear()

    for loaded in batches(5):
        trained.step(loaded)

    assert torch.equal(flat(model), before)
    server.fetch_gate.set()
    trained.loop.flush()
    trained.loop.fetch_now()
    assert torch.equal(flat(model), server.values[placements.PARAMETERS])
    trained.connection.close()


@pytest.mark.parametrize("in_flight", [1, 2])
def test_computing_goes_on_until_max_in_flight_pushes_are_unanswered(in_flight: int) -> None:
    server = OneShard(0.05)
    trained = Trained(a_network(), server, a_downpour(), in_flight=in_flight)
    waited = trained.connection.pushes.waited_seconds
    server.gate.clear()

    for loaded in batches(in_flight + 1):
        trained.step(loaded)

    assert server.pushes == []
    assert trained.connection.pushes.waited_seconds == waited
    server.gate.set()
    trained.loop.flush()
    assert len(server.pushes) == in_flight + 1
    trained.connection.close()


def test_the_step_after_max_in_flight_waits_and_says_how_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = OneShard(0.05)
    trained = Trained(a_network(), server, a_downpour(), in_flight=1)
    waited = trained.connection.pushes.waited_seconds
    server.gate.clear()
    steps = list(batches(3))
    trained.step(steps[0])
    trained.step(steps[1])
    third = threading.Thread(target=trained.step, args=[steps[2]], daemon=True)

    pushes = trained.connection.pushes
    get, waits = pushes._cancellation.get, threading.Event()

    def note_and_get(source: "queue.SimpleQueue[Any]") -> Any:
        if source is pushes._free:
            waits.set()
        return get(source)

    monkeypatch.setattr(pushes._cancellation, "get", note_and_get)
    third.start()
    assert waits.wait(20)
    began = time.perf_counter()
    third.join(0.1)
    assert third.is_alive()
    held = time.perf_counter() - began
    server.gate.set()
    third.join(20)

    assert not third.is_alive()
    assert trained.connection.pushes.waited_seconds - waited >= held
    trained.connection.close()


@pytest.mark.parametrize("in_flight", [1, 2])
def test_accruing_goes_on_until_max_in_flight_pushes_are_unanswered(in_flight: int) -> None:
    server = OneShard(0.05)
    trained = Trained(a_network(), server, a_downpour(push_every=2), in_flight=in_flight)
    waited = trained.connection.pushes.waited_seconds
    server.gate.clear()

    for loaded in batches(2 * in_flight):
        trained.step(loaded)

    assert server.pushes == []
    assert trained.connection.pushes.waited_seconds == waited
    server.gate.set()
    trained.loop.flush()
    assert sum(push.samples for push in server.pushes) == 2 * in_flight * 8
    trained.connection.close()


def test_local_steps_between_pushes_of_several_steps_are_clipped_like_a_plain_loop() -> None:
    model = a_network()
    plain = copy.deepcopy(model)
    plainly(plain, 6, clip=0.1)
    server = OneShard(0.05)
    config = a_downpour(push_every=2, fetch_every=100, local_learning_rate=0.05, clip_norm=0.1)
    trained = Trained(model, server, config, in_flight=2)
    server.fetch_gate.clear()

    for loaded in batches(6):
        trained.step(loaded)

    assert torch.allclose(flat(model), flat(plain), atol=1e-6)
    server.fetch_gate.set()
    trained.connection.close()


@pytest.mark.parametrize(
    ("assignments", "buffers"),
    [
        ([], 2),
        (["maxInFlight=3"], 4),
        (["maxInFlight=0"], 1),
        (["pushEvery=2"], 3),
        (["pushEvery=2", "localLearningRate=0"], 2),
        (["pushEvery=2", "maxInFlight=0"], 2),
        (["pushEvery=2", "maxInFlight=0", "localLearningRate=0"], 2),
        (["pushEvery=2", "maxInFlight=3", "localLearningRate=0"], 4),
    ],
)
def test_a_gradient_buffer_more_is_made_only_to_accrue_with_local_steps(
    assignments: list[str], buffers: int
) -> None:
    job = a_job(*(f"spec.strategy.downpour.{assignment}" for assignment in assignments))

    assert accrual.gradient_buffers(job.spec.strategy.only_downpour) == buffers


def test_a_clipped_gradient_travels_unscaled_with_its_factor() -> None:
    model = a_network()
    plain = copy.deepcopy(model)
    plainly(plain, 20, clip=0.1)
    server = OneShard(0.05)
    config = a_downpour(waits_for_answers=True, clip_norm=0.1)
    trained = Trained(model, server, config)

    for loaded in batches(20):
        trained.step(loaded)
    trained.loop.fetch_now()

    assert all(0 < push.scale < 1 for push in server.pushes)
    assert torch.allclose(flat(model), flat(plain), atol=1e-5)
    trained.connection.close()


def test_each_step_is_clipped_by_itself_when_gradients_accrue() -> None:
    server = OneShard(1.0)
    trained = Trained(
        a_network(),
        server,
        a_downpour(push_every=4, fetch_every=100, clip_norm=1e-3),
        in_flight=1,
    )
    before = server.values[placements.PARAMETERS].clone()

    for loaded in batches(5):
        trained.step(loaded)
    trained.loop.flush()

    moved = (server.values[placements.PARAMETERS] - before).norm().item()
    assert [push.scale for push in server.pushes] == [1.0, 1.0]
    assert 0 < moved <= 5 * 1e-3 * 1.001
    trained.connection.close()


@pytest.mark.parametrize("push_every", [1, 2])
def test_a_gradient_that_is_not_finite_is_counted_and_reaches_nothing(push_every: int) -> None:
    model = a_network()
    server = OneShard(0.05)
    config = a_downpour(push_every=push_every, local_learning_rate=0.05)
    trained = Trained(model, server, config, in_flight=1)

    for number, loaded in enumerate(batches(5)):
        bad = loaded.batch[0] * float("nan") if number == 2 else loaded.batch[0]
        trained.step(loaded._replace(batch=(bad, loaded.batch[1])))
    trained.loop.flush()

    assert trained.loop.counters.non_finite == 1
    assert trained.loop.counters.non_finite_lease == 1
    assert sum(push.samples for push in server.pushes) == 4 * 8
    assert torch.isfinite(server.values[placements.PARAMETERS]).all()
    assert torch.isfinite(flat(model)).all()
    trained.connection.close()


def test_a_gradient_that_is_not_finite_still_moves_the_position_on() -> None:
    server = OneShard(0.05)
    trained = Trained(a_network(), server, a_downpour(), in_flight=1)

    for loaded in batches(3):
        bad = loaded.batch[0] * float("inf")
        trained.step(loaded._replace(batch=(bad, loaded.batch[1])))
    trained.loop.flush()

    acknowledged = trained.connection.pushes.answered
    assert server.pushes == []
    assert acknowledged.position == Position(lease=1, offset=24)
    assert (acknowledged.samples, acknowledged.pushes) == (0, 0)
    trained.connection.close()


def test_pushes_name_the_version_that_their_gradient_was_computed_on() -> None:
    server = OneShard(0.05)
    trained = Trained(a_network(), server, a_downpour(waits_for_answers=True))

    for loaded in batches(4):
        trained.step(loaded)

    assert [push.versions for push in server.pushes] == [((1, n),) for n in range(4)]
    assert trained.connection.pushes.staleness[0] == 4
    trained.connection.close()


def test_an_error_of_the_fetch_thread_ends_the_loop_though_pushes_are_answered() -> None:
    class Failing(OneShard):
        def fetch(
            self, into: Mapping[Vector, Buffer], fragment: Fragment = WHOLE, *, steps: int = 0
        ) -> FetchResult:
            if self.version:
                raise ConnectionError("shard 0 is gone")
            return super().fetch(into, fragment, steps=steps)

    trained = Trained(a_network(), Failing(0.05), a_downpour(), in_flight=1)

    def train() -> None:
        for loaded in batches(1000):
            trained.step(loaded)

    with pytest.raises(ConnectionError, match="shard 0 is gone"):
        train()
    trained.connection.close()


def test_an_error_of_the_push_thread_ends_the_loop_with_its_cause() -> None:
    class Failing(OneShard):
        def push(self, push: object) -> list[object]:  # type: ignore[override]  # noqa: ARG002
            raise ConnectionError("shard 0 is gone")

    trained = Trained(a_network(), Failing(0.05), a_downpour(waits_for_answers=True))

    with pytest.raises(ConnectionError, match="shard 0 is gone"):
        trained.step(next(batches(1)))
    trained.connection.close()
