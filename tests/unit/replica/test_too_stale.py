"""What a replica does when a shard refuses its push as too old: nothing of it counts."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from builders.agreements import in_all, rank_of
from builders.downpours import a_downpour
from builders.local_training import local_steps
from builders.parameter_servers import OneShard
from disttrain.coordinator.protocol.fields import Position, Progress
from disttrain.parameter_server.client import Push, PushResult
from disttrain.parameter_server.errors import PushRefused
from disttrain.replica import ledger
from disttrain.replica.agreement import ALONE, Agreement, Answered, Together
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.connection import Connection, Sides
from disttrain.replica.downpour import Downpour
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.ledger import SILENT, Ledger
from disttrain.replica.local_steps import LocalStepper
from disttrain.replica.pace import NeverWaits
from disttrain.replica.pipeline import Loaded
from disttrain.replica.stepper import Stepper, TrainingLoop
from disttrain.replica.work import LostLeases, WorkItem
from disttrain.task.loss import BatchLoss, LossContext
from disttrain.transport.header import Reason
from disttrain.transport.memory import OrdinaryMemory

SAMPLES, BATCH = 32, 8


class Refusing(OneShard):
    """Refuses pushes of some numbers, each once."""

    def __init__(self, too_old: set[int]) -> None:
        super().__init__(learning_rate=1.0)
        self.too_old = too_old
        self.numbers: list[int] = []

    def push(self, push: Push) -> list[PushResult]:
        self.numbers.append(push.sequence)
        if push.sequence in self.too_old:
            message = "too old"
            raise PushRefused(message, Reason.TOO_STALE)
        return super().push(push)


class Coordinator:
    """Gives leases of 32 samples, and again what is left of those that were given back."""

    dry = True

    def __init__(self, leases: int) -> None:
        self.numbers = count(1)
        self.left = [(portion, 0) for portion in range(leases)]
        self.open: dict[int, tuple[int, int]] = {}
        self.batches: list[Loaded] = []
        self.told: list[Progress] = []

    def next(self, timeout: float) -> Loaded | None:
        del timeout
        if not self.batches and self.left:
            self._grant(*self.left.pop(0))
        return self.batches.pop(0) if self.batches else None

    def drop(self) -> None:
        self.batches.clear()

    def hear(self, progress: Progress) -> None:
        self.told.append(progress)
        for ended in progress.abandoned:
            portion, first = self.open.pop(ended.lease)
            self.left.append((portion, first + ended.offset))

    def _grant(self, portion: int, begin: int) -> None:
        lease = next(self.numbers)
        self.open[lease] = portion, begin
        for first in range(begin, SAMPLES, BATCH):
            indices = list(range(SAMPLES * portion + first, SAMPLES * portion + first + BATCH))
            item = WorkItem(lease, 0, portion, first, first + BATCH - begin, indices)
            self.batches.append(Loaded(item, torch.tensor(indices)))


class Story:
    """A model that counts its samples."""

    def __init__(
        self,
        too_old: set[int],
        *,
        waits: bool,
        push_every: int,
        leases: int,
        takes_own_steps: bool = False,
        agreement: Agreement = ALONE,
        log: Ledger = SILENT,
    ) -> None:
        self.model = nn.Embedding(SAMPLES * leases, 1)
        nn.init.zeros_(self.model.weight)
        self.server = Refusing(too_old)
        config = a_downpour(waits_for_answers=waits, push_every=push_every)
        joined = FlatModel(self.model, OrdinaryMemory(), torch.device("cpu"), outgoing_buffers=3)
        sides = Sides(push=self.server, fetch=self.server, agreement=agreement)
        self.connection = Connection(joined, sides, Cancellation(), log)
        self.connection.upload([0])
        self.downpour: Stepper = Downpour(self.connection, config, pace=NeverWaits())
        if takes_own_steps:
            sgd = {"name": "SGD", "arguments": {"lr": 1.0}}
            adopt = "replace" if waits else "add"
            manifest = local_steps(steps=push_every, adopt=adopt, optimizer=sgd)
            self.downpour = LocalStepper(self.connection, manifest)
        self.downpour.begin(self.connection.first_fetch(lambda: None))
        self.coordinator = Coordinator(leases)
        self.lost = LostLeases(frozenset)
        self.loop = TrainingLoop(
            self.downpour, self.loss, self.coordinator, self.lost, 0, self.tell
        )

    def loss(self, batch: Tensor, context: LossContext) -> BatchLoss:
        del context
        return BatchLoss(-self.model(batch).sum())

    def tell(self) -> None:
        self.coordinator.hear(self.downpour.progress(self.lost))

    def run(self) -> list[float]:
        """Until there is no more; how often each sample was applied."""
        self.loop.train_until(self._ends)
        self.downpour.fetch_now()
        return [float(value) for value in self.model.weight.flatten().tolist()]

    def _ends(self) -> bool:
        coordinator = self.coordinator
        if coordinator.batches or coordinator.left:
            return False
        self.downpour.flush()
        return not self.downpour.was_too_stale


@pytest.fixture
def make() -> Iterator[Callable[..., Story]]:
    made: list[Story] = []

    def make(too_old: set[int], log: Ledger = SILENT, **how: int) -> Story:
        waits, push_every = bool(how.get("waits")), how.get("push_every", 1)
        story = Story(
            too_old,
            waits=waits,
            push_every=push_every,
            leases=how.get("leases", 3),
            takes_own_steps=bool(how.get("takes_own_steps")),
            log=log,
        )
        made.append(story)
        return story

    yield make
    for story in made:
        story.connection.close()


@pytest.mark.parametrize("push_every", [1, 3])
@pytest.mark.parametrize("waits", [0, 1])
@pytest.mark.parametrize("too_old", [{1}, {2}, {4}, {5, 6, 7}, {1, 3, 5}])
def test_each_sample_is_applied_once(
    make: Callable[..., Story], too_old: set[int], waits: int, push_every: int
) -> None:
    story = make(too_old, waits=waits, push_every=push_every)

    assert set(story.run()) == {1.0}

    numbers = story.server.numbers
    assert numbers == sorted(set(numbers))
    assert len(story.coordinator.told) == len(too_old & set(numbers))


@pytest.mark.parametrize("steps", [1, 3, 5])
@pytest.mark.parametrize("waits", [0, 1])
@pytest.mark.parametrize("too_old", [{1}, {2}, {1, 2}])
def test_each_sample_of_a_replica_with_local_steps_is_applied_once(
    make: Callable[..., Story], too_old: set[int], waits: int, steps: int
) -> None:
    story = make(too_old, waits=waits, push_every=steps, takes_own_steps=True)

    assert set(story.run()) == {1.0}

    numbers = story.server.numbers
    assert numbers == sorted(set(numbers))
    assert story.server.samples == 3 * SAMPLES


def test_what_was_computed_after_it_is_not_pushed_and_all_of_its_leases_go_back(
    make: Callable[..., Story], tmp_path: Path
) -> None:
    path = tmp_path / "replica-0.i1.bin"
    story = make({3}, Ledger(path), leases=2)
    story.server.gate.clear()
    steps = 0

    def ends() -> bool:
        nonlocal steps
        steps += 1
        if steps == 3:
            story.server.gate.set()
        return story.downpour.was_too_stale

    story.loop.train_until(ends)
    assert story.downpour.progress(story.lost).position == Position(lease=1, offset=16)

    assert set(story.run()) == {1.0}
    (told,) = story.coordinator.told
    assert Position(lease=1, offset=16) in told.abandoned

    records, sent = ledger.read(path), story.server.numbers
    held_back = records[records["kind"] == ledger.Kind.HELD_BACK]["number"].tolist()
    assert held_back == sorted(set(range(1, max(sent))) - set(sent))
    assert len(held_back) > 0


@pytest.mark.parametrize("too_old", [{2}, {1, 3}, {4}])
def test_all_processes_go_on_from_what_each_of_them_has_pushed(too_old: set[int]) -> None:
    def work(one: Together) -> tuple[Answered, int, list[int]]:
        own = too_old if rank_of(one) else set()
        story = Story(own, waits=False, push_every=1, leases=3, agreement=one)
        stepper = story.downpour
        progress = [0]
        while (loaded := story.coordinator.next(0.0)) is not None:
            gradient = stepper.begin_step()
            loss = story.loss(loaded.batch, LossContext(step=0, epoch=0, samples=0, seed=0))
            loss.mean.backward()  # type: ignore[no-untyped-call]
            scale = stepper.accrue(gradient, loss, BATCH, loaded.item.position)
            stepper.push()
            stepper.adopt(gradient, scale, BATCH)
            if stepper.was_too_stale:
                stepper.start_over()
            progress.append(stepper.progress(story.lost).samples)
        stepper.flush()
        if stepper.was_too_stale:
            stepper.start_over()
        assert progress == sorted(progress), "the coordinator takes what goes back for old"
        story.connection.close()
        return story.connection.pushes.answered, story.server.samples, story.server.numbers

    (first, applied, _), (second, rest, numbers) = in_all(work, 2)

    assert first == second
    assert first.samples == rest <= applied
    assert too_old & set(numbers)
