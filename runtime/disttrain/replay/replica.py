"""One replayed life of a replica: production's model, loop and exchanges, driven by its log."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from disttrain.coordinator.leases import permutation
from disttrain.coordinator.protocol.fields import Position
from disttrain.job import defaults
from disttrain.parameter_server.client import FetchClient, FetchResult, Push, PushClient
from disttrain.replay.asynchrony import Observer, PushUnderWay
from disttrain.replay.comparing import ComparingLedger
from disttrain.replay.recording import DataOrder, Recording
from disttrain.replay.wires import LOOK_AGAIN_SECONDS, HaltByTurns, Wires
from disttrain.replica import device, downpour_config
from disttrain.replica.connection import Connection
from disttrain.replica.downpour import Downpour, TrainingLoop
from disttrain.replica.fetch_thread import FetchThread
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.flat_vector import Outgoing
from disttrain.replica.ledger import Kind
from disttrain.replica.lost_leases import LostLeases
from disttrain.replica.pace import NeverWaits
from disttrain.replica.pipeline import Batches, Loaded, PipelineConfig
from disttrain.replica.pushes import PushThread
from disttrain.replica.work import WorkItem
from disttrain.state.vector import Vector
from disttrain.task.loss import BatchLoss, LossContext
from disttrain.task.task import Split
from disttrain.transport.header import Verb
from disttrain.transport.interface import Buffer
from disttrain.transport.memory import OrdinaryMemory
from disttrain.transport.virtual_time import Bell


class Learner:
    """The model, data and loss of a replica."""

    def __init__(self, recording: Recording, outgoing_buffers: int) -> None:
        spec, self._task = recording.spec, recording.task
        place = device.resolve(recording.device)
        self.module = self._task.model(spec.seed)
        self.model = FlatModel(
            self.module, OrdinaryMemory(), place, outgoing_buffers=outgoing_buffers
        )
        self._move = device.mover(place)
        examples = self._task.examples(Split.TRAIN, defaults.samples_per_step(spec))
        config = PipelineConfig(seed=recording.data.seed)
        self.batches = Batches(examples.dataset, self._task.collate, config, seeded=True)

    def loss(self, batch: Any, context: LossContext) -> BatchLoss:
        return self._task.loss(self.module, self._move(batch), context)


class ReplayedReplica:
    """Computes as far as shards need it: to the latest push and fetch that their logs have named.

    It is the loop's source of batches too: each step that its own log names.
    """

    dry = False

    def __init__(
        self, recording: Recording, wires: Wires, ledger: ComparingLedger, observer: Observer
    ) -> None:
        self.ledger = ledger
        self._recording = recording
        self._wires = wires
        self._observer = observer
        self._named = {Verb.PUSH: 0, Verb.FETCH: 0}
        self._begun = {Verb.PUSH: 0, Verb.FETCH: 0}
        self._is_named = Bell(wires.time)
        self._items: list[WorkItem] = []
        """Batches since the last push."""
        self._computed_on: Tensor | None = None
        """A copy of the parameters of the first of them."""

    def go_on_to(self, verb: Verb, number: int) -> None:
        """A shard's log names this push or fetch."""
        if number > self._named[verb]:
            self._named[verb] = number
            self._is_named.ring()

    def run(self) -> None:
        """In the thread that computes."""
        torch.set_num_threads(self._recording.replica_threads)
        spec = self._recording.spec
        learner = Learner(self._recording, downpour_config.gradient_buffers(spec))
        self._batches, self._model = learner.batches, learner.model
        connection = _Connection(self, self._model, self._wires)
        self._downpour = Downpour(connection, downpour_config.from_spec(spec), NeverWaits())
        lost, seed = LostLeases(frozenset), self._recording.data.seed
        loop = TrainingLoop(self._downpour, learner.loss, self, lost, seed)
        connection.fetches.ask(self._model.first_fetch_into)
        first = connection.fetches.wait()
        self._model.adopt_first_fetch()
        if first is not None:
            self._downpour.begin(first)
        loop.train_until(self._ends)

    def next(self, timeout: float) -> Loaded:
        """The batch of the step that the log names next."""
        del timeout
        self._wait_until_needed()
        record = self.ledger.following
        assert record is not None  # noqa: S101  _ends looked
        item = work_item(record, self._recording.data)
        if self._computed_on is None:
            self._computed_on = self._model.parameters.detach().clone()
        self._items.append(item)
        return self._batches[item]

    def drop(self) -> None:
        """A replayed replica ends with its log."""

    def fetches(self) -> None:
        """A fetch begins, and with it a step that may not have ended in the run."""
        self._begun[Verb.FETCH] += 1
        self._wait_until_needed()

    def pushes(self, number: int) -> None:
        """What was computed since the last push is pushed; number 0: it is left out."""
        if number:
            self._begun[Verb.PUSH] = number
            assert self._computed_on is not None  # noqa: S101  a batch was before
            shards = len(self._recording.shards)
            push = PushUnderWay(self._computed_on, tuple(self._items), shards)
            self._observer.under_way[self.ledger.life, number] = push
        self._computed_on = None
        self._items.clear()

    def _wait_until_needed(self) -> None:
        while all(self._begun[verb] >= number for verb, number in self._named.items()):
            self._wires.time.wait(LOOK_AGAIN_SECONDS, [self._is_named])

    def _ends(self) -> bool:
        """Flush and fetch where the run did between two steps; whether no step follows."""
        while (kind := self.ledger.following_kind) in {Kind.FLUSHED, Kind.FETCHING_NOW}:
            if kind == Kind.FLUSHED:
                self._downpour.flush()
            else:
                self._downpour.fetch_now()
        return kind != Kind.STEP


class _Connection(Connection):
    """Adopts what the record says, and tells what is exchanged."""

    def __init__(self, replica: ReplayedReplica, model: FlatModel, wires: Wires) -> None:
        sides, halt = wires.sides(replica.ledger.life), HaltByTurns(wires.time)
        self.model = model
        self.ledger = replica.ledger
        self.pushes = _Pushes(replica, sides.push, model, halt)
        self.fetches = _Fetches(replica, sides.fetch, halt)


class _Pushes(PushThread):
    def __init__(
        self, replica: ReplayedReplica, client: PushClient, model: FlatModel, halt: HaltByTurns
    ) -> None:
        super().__init__(client, model, halt)
        self._replica = replica

    def submit(self, outgoing: Outgoing, push: Push) -> None:
        self._replica.pushes(push.sequence)
        super().submit(outgoing, push)

    def passed(self, position: Position) -> None:
        self._replica.pushes(0)
        super().passed(position)


class _Fetches(FetchThread):
    def __init__(self, replica: ReplayedReplica, client: FetchClient, halt: HaltByTurns) -> None:
        super().__init__(client, halt)
        self._replica = replica

    def ask(
        self,
        into: Callable[[], dict[Vector, Buffer]],
        land: Callable[[], None] = lambda: None,
        after_seconds: float | None = 0.0,
    ) -> None:
        is_new = not self._asked
        super().ask(into, land, after_seconds)
        if is_new:
            self._replica.fetches()

    def take(self, within_seconds: float = 0.0) -> FetchResult | None:
        """What is there, or comes, if it was adopted here in the run."""
        del within_seconds
        return self.wait() if self._replica.ledger.following_kind == Kind.ADOPTED else None


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
