"""How far it is from the end of backward to the update, in files and types of the product.

A file counts when one of its functions is called in the thread that the push is in: the compute
thread until it has handed the push over, the push thread, and the shard's. Transport and logs
count. The model has no buffers: those would add how they are found in it.

A type counts when an object of it that is handed to a function holds the push's number of samples
and its position, or such an object in a field: who writes one copies what the push says. Threads,
tasks and other actors are no such objects.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch.nn import functional

from builders import downpour_shards
from builders.downpours import a_downpour
from builders.networks import a_network
from builders.replicas import Replica, replica
from builders.shard_thread import ShardThread
from builders.transports import PATIENCE
from disttrain.job.strategies.downpour import Optimizer
from disttrain.parameter_server import ledger
from disttrain.parameter_server.acknowledged import AcknowledgedFile
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.shard import Shard
from disttrain.parameter_server.update_rules.adagrad import AdagradRule
from disttrain.replica import model_tensors
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.client_threads import PushThread
from disttrain.replica.connection import Connection, Sides
from disttrain.replica.downpour import Downpour
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.ledger import Ledger
from disttrain.replica.pipeline import Loaded
from disttrain.replica.stepper import TrainingLoop
from disttrain.replica.work import LostLeases, WorkItem
from disttrain.state.placement import place
from disttrain.task.loss import BatchLoss, LossContext
from disttrain.transport.config import TransportKind
from disttrain.transport.interface import Transport

MOST_FILES = 26
"""With the six that either transport itself has."""
TYPES = {"Push", "Header", "Request"}
SAMPLES, OFFSET = 7, 70_007


class Way:
    """Notes files and types from `begin` to `arrived`."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.types: set[str] = set()
        self.arrived = threading.Event()
        self._gone: set[int] = set()
        self._is_under_way = False

    def begin(self) -> None:
        self._is_under_way = True

    def handed_over(self) -> None:
        """What this thread does from now on is not of the push."""
        self._gone.add(threading.get_ident())

    def arrive(self) -> None:
        if self._is_under_way:
            self._is_under_way = False
            self.arrived.set()

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or not self._is_under_way or threading.get_ident() in self._gone:
            return
        _, _, file = frame.f_code.co_filename.rpartition("/runtime/disttrain/")
        if file != frame.f_code.co_filename and threading.current_thread().name != "fetch":
            self.files.add(file)
            handed = frame.f_code.co_varnames[: frame.f_code.co_argcount]
            self.types.update(
                type(value).__name__
                for value in (frame.f_locals.get(name) for name in handed)
                if tells(value) or any(tells(held) for held in held_by(value))
            )


def held_by(value: object) -> tuple[Any, ...]:
    """The fields of a value; none of an actor."""
    if isinstance(value, tuple):
        return tuple(value)
    if is_dataclass(value) and hasattr(type(value), "__slots__"):
        return tuple(getattr(value, field.name) for field in fields(value))
    return ()


def tells(value: object) -> bool:
    """Whether it says how many samples are behind the push and what its position is."""
    held = [one for one in held_by(value) if isinstance(one, int)]
    return SAMPLES in held and OFFSET in held


def a_shard(folder: Path, model: torch.nn.Module, transport: Transport) -> Shard:
    rule = Optimizer.model_validate({"adagrad": {"learningRate": 0.1}}).rule
    records = Records(
        incarnation=1,
        acknowledged=AcknowledgedFile(folder / "acknowledged.bin"),
        ledger=ledger.Ledger(folder / "shard-0.i1.bin"),
    )
    shard = downpour_shards.build(ShardState(index=0, incarnation=1), rule, records)
    placement = place(model_tensors.describe(model).layout, 1, rule.kept)
    shard.configure(placement, transport.chunk_bytes)
    shard.admit(SenderIncarnation(0, 1))
    return shard


class Batches:
    """Each batch is of a lease of its own."""

    dry = False

    def __init__(self) -> None:
        self.given = 0

    def next(self, timeout: float) -> Loaded:
        del timeout
        self.given += 1
        item = WorkItem(self.given, 0, 0, 0, OFFSET, list(range(SAMPLES)))
        return Loaded(item, (torch.randn(SAMPLES, 1, 8, 8), torch.arange(SAMPLES)))

    def drop(self) -> None:
        pass


def steps(count: int) -> Callable[[], bool]:
    """Ends a loop after so many."""
    left = iter(range(count))
    return lambda: next(left, None) is None


@pytest.fixture(
    params=[TransportKind.TCP, TransportKind.SHARED_MEMORY], ids=lambda kind: kind.value
)
def kind(request: pytest.FixtureRequest) -> TransportKind:
    found: TransportKind = request.param
    return found


@pytest.fixture
def way() -> Iterator[Way]:
    """Threads that are made while it is there are watched from their beginning."""
    found, before = Way(), sys.getprofile()
    threading.setprofile(found.profile)
    sys.setprofile(found.profile)
    yield found
    sys.setprofile(before)
    threading.setprofile(None)


@pytest.fixture
def model() -> torch.nn.Module:
    return a_network()


@pytest.fixture
def one(kind: TransportKind, tmp_path: Path, model: torch.nn.Module, way: Way) -> Iterator[Replica]:
    with (
        ShardThread(kind, tmp_path, partial(a_shard, tmp_path, model)) as shard,
        replica(kind, [shard]) as made,
    ):
        yield made


def test_a_push_passes_few_files_and_three_types(
    one: Replica, model: torch.nn.Module, tmp_path: Path, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    flat = FlatModel(model, one.memory, torch.device("cpu"), outgoing_buffers=2)
    sides = Sides(push=one.pushes, fetch=one.fetches)
    connection = Connection(flat, sides, Cancellation(), Ledger(tmp_path / "replica-0.i1.bin"))
    connection.upload([0])
    downpour = Downpour(connection, a_downpour(fetch_every=4))
    downpour.begin(connection.first_fetch(lambda: None))

    def loss(batch: Any, context: LossContext) -> BatchLoss:
        del context
        return BatchLoss(functional.cross_entropy(model(batch[0]), batch[1]))

    loop = TrainingLoop(downpour, loss, Batches(), LostLeases(frozenset), 0)
    loop.train_until(steps(3))
    connection.pushes.wait_answered()

    submit, accrue, apply = PushThread.submit, Downpour.accrue, AdagradRule.apply

    def accrue_and_note(*arguments: Any) -> Any:
        way.begin()
        way.profile(sys._getframe(1), "call", None)  # The loop itself, in which backward ended.
        return accrue(*arguments)

    def submit_and_note(*arguments: Any) -> None:
        submit(*arguments)
        way.handed_over()

    def apply_and_note(*arguments: Any) -> None:
        apply(*arguments)
        way.arrive()

    monkeypatch.setattr(Downpour, "accrue", accrue_and_note)
    monkeypatch.setattr(PushThread, "submit", submit_and_note)
    monkeypatch.setattr(AdagradRule, "apply", apply_and_note)
    loop.train_until(steps(1))
    assert way.arrived.wait(PATIENCE)

    connection.close()
    assert len(way.files) <= MOST_FILES, "\n".join(sorted(way.files))
    assert way.types <= TYPES
    assert "Push" in way.types
