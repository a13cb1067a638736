"""One replayed life of a replica: the real model, task and Downpour steps, driven by its log."""

from typing import Any

import numpy as np

from disttrain.coordinator.leases import permutation
from disttrain.job import defaults
from disttrain.parameter_server.deliveries import SenderLife
from disttrain.replay.comparing import ComparingLedger, Differences
from disttrain.replay.errors import RecordContradicted
from disttrain.replay.exchange import (
    PushUnderWay,
    ReplayedConnection,
    ReplayedFetches,
    ReplayedPushes,
    Turns,
)
from disttrain.replay.exchange import Shards as ShardsAhead
from disttrain.replay.recording import DataOrder, Recording, Records
from disttrain.replica import device, pushes
from disttrain.replica.downpour import Downpour, TrainingLoop
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.leases import LostLeases
from disttrain.replica.ledger import Kind
from disttrain.replica.pace import NeverWaits
from disttrain.replica.pipeline import Batches, Loaded, PipelineConfig
from disttrain.replica.work import WorkItem
from disttrain.state.share import Share
from disttrain.task.loss import BatchLoss, LossContext
from disttrain.task.task import Split
from disttrain.transport.memory import OrdinaryMemory


class ReplayedReplica:
    """Runs as far as somebody needs it: until a push that the shards' logs name.

    It is the loop's source of batches too: each step that the log names.
    """

    dry = False

    def __init__(self, life: SenderLife, recording: Recording, differences: Differences) -> None:
        self.name = f"replica-{life.sender} (life {life.incarnation})"
        self.life = life
        spec, task = recording.spec, recording.task
        place = device.resolve(recording.device)
        self.module = task.model(spec.seed)
        buffers = pushes.gradient_buffers(spec.strategy.only_downpour)
        self.model = FlatModel(self.module, OrdinaryMemory(), place, outgoing_buffers=buffers)
        self.ledger = ComparingLedger(life, _log(life, recording), differences)
        self.steps = 0
        self._recording = recording
        self._turns = Turns(self._train, recording.replica_threads)
        self._move = device.mover(place)
        examples = task.examples(Split.TRAIN, defaults.samples_per_step(spec))
        config = PipelineConfig(seed=recording.data.seed)
        self._batches = Batches(examples.dataset, task.collate, config, seeded=True)

    def join(self, shards: ShardsAhead, shares: list[Share]) -> None:
        """Begin with the first fetch, once the shards are there."""
        self.pushes = ReplayedPushes(self.model, shards, len(shares), self._turns)
        self.fetches = ReplayedFetches(shards, shares, self.ledger, self._turns)
        self.fetches.ask(self.model.first_fetch_into)
        manifest = self._recording.spec.strategy.only_downpour
        connection = ReplayedConnection(self.model, self.pushes, self.fetches, self.ledger)
        self._downpour = Downpour(connection, manifest, pace=NeverWaits())
        seed, lost = self._recording.data.seed, LostLeases(frozenset)
        self._loop = TrainingLoop(self._downpour, self._loss, self, lost, seed)

    def push(self, number: int) -> PushUnderWay:
        """A push, after the steps that lead to it."""
        while self.pushes.sequence < number:
            if not self._turns.go_on():
                message = f"the shards' logs hold more of {self.name} than its own log"
                raise RecordContradicted(message)
        if number not in self.pushes.under_way:
            message = f"push {number} of {self.name} is applied after all shards had answered it"
            raise RecordContradicted(message)
        return self.pushes.under_way[number]

    def end(self) -> None:
        """Nothing more is needed of it."""
        self._turns.end()

    def next(self, timeout: float) -> Loaded:
        """The batch of the step that the log names next."""
        del timeout
        record = self.ledger.following
        assert record is not None  # noqa: S101  _ends looked
        item = work_item(record, self._recording.data)
        if self.pushes.computed_on is None:
            self.pushes.computed_on = self.model.parameters.detach().clone()
        self.pushes.items.append(item)
        self.steps += 1
        return self._batches[item]

    def drop(self) -> None:
        """A replayed replica ends with its log."""

    def _train(self) -> None:
        first = self.fetches.wait()
        self.model.adopt_first_fetch()
        if first is not None:
            self._downpour.begin(first)
        self._loop.train_until(self._ends)

    def _ends(self) -> bool:
        """Flush and fetch where the run did between two steps; whether no step follows."""
        while (kind := self.ledger.following_kind) in {Kind.FLUSHED, Kind.FETCHING_NOW}:
            if kind == Kind.FLUSHED:
                self._downpour.flush()
            else:
                self._downpour.fetch_now()
        return kind != Kind.STEP

    def _loss(self, batch: Any, context: LossContext) -> BatchLoss:
        return self._recording.task.loss(self.module, self._move(batch), context)


def work_item(record: np.void, data: DataOrder) -> WorkItem:
    """The batch of a step."""
    epoch, portion = int(record["epoch"]), int(record["portion"])
    first, count = int(record["first"]), int(record["samples"])
    indices = permutation.portion_indices(
        data.seed, data.samples, data.portion_size, portion, epoch
    )
    return WorkItem(
        lease=int(record["lease"]),
        epoch=epoch,
        portion=portion,
        first=first,
        end_offset=int(record["lease_offset"]),
        indices=indices[first : first + count].tolist(),
    )


def _log(life: SenderLife, recording: Recording) -> Records:
    if life not in recording.replicas:
        message = f"the shards know replica-{life.sender} (life {life.incarnation}), it left no log"
        raise RecordContradicted(message)
    return recording.replicas[life]
