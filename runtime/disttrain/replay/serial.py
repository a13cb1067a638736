"""The same updates without asynchrony: each gradient is of the very parameters it is applied to."""

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from disttrain.audit.evidence import Incarnation
from disttrain.job import defaults
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.ledger import RECORD
from disttrain.replay.recording import Recording
from disttrain.replay.replica import Learner
from disttrain.replay.shard import ReplayedShard
from disttrain.replay.wires import LOOK_AGAIN_SECONDS, VirtualTimeCancellation, Wires, compute_with
from disttrain.replica.connection import Connection
from disttrain.replica.downpour import Downpour
from disttrain.replica.pace import NeverWaits
from disttrain.replica.pipeline import Loaded
from disttrain.replica.stepper import TrainingLoop
from disttrain.replica.work import LostLeases, WorkItem
from disttrain.state.placement import place

_SENDER = SenderIncarnation(0, 1)
_INCARNATION = 1


class SerialTraining:
    """One replica and one shard that wait for each other. It is the loop's source of batches."""

    dry = False

    def __init__(self, recording: Recording) -> None:
        self._learner = Learner(recording, outgoing_buffers=2)
        self.module = self._learner.module
        self._recording = recording
        self._order: Iterator[tuple[WorkItem, ...]] = iter(())
        self._items: deque[WorkItem] = deque()
        """Of the next push, not computed yet."""

    def run(self, order: Sequence[tuple[WorkItem, ...]]) -> None:
        """One update per push of the run, in the order in which they were applied."""
        recording, model = self._recording, self._learner.model
        spec, seed = recording.spec, recording.data.seed
        alone = place(model.tensors.layout, 1, spec.strategy.only_downpour.vectors)
        placement = replace(alone, factors=recording.placement.factors)
        wires = Wires(placement, recording.chunk_bytes, [_INCARNATION])
        log = Incarnation(
            process="shard-0", index=0, incarnation=_INCARNATION, records=np.zeros(0, RECORD)
        )
        shard = ReplayedShard(recording, log, placement, wires)
        shard.begin_with(model.values_to_upload())
        shard.shard.admit(_SENDER)
        wires.time.start(partial(self._serve, shard, wires))

        connection = Connection(model, wires.sides(_SENDER), VirtualTimeCancellation(wires.time))
        never = {"push_every": sys.maxsize, "fetch_every": sys.maxsize}
        manifest = spec.strategy.only_downpour.model_copy(
            update={**never, "local_learning_rate": 0.0}
        )
        extent = defaults.extent(spec, recording.data.samples)
        self._downpour = _PushesWhenFlushed(connection, manifest, pace=NeverWaits(), run=extent)
        loop = TrainingLoop(self._downpour, self._learner.loss, self, LostLeases(frozenset), seed)
        self._order = iter(order)
        meanwhile = partial(wires.time.wait, LOOK_AGAIN_SECONDS)
        self._downpour.begin(connection.first_fetch(meanwhile, manifest.computes_on))
        loop.train_until(self._ends)
        wires.time.close()

    def next(self, timeout: float) -> Loaded:
        del timeout
        return self._learner.batches[self._items.popleft()]

    def drop(self) -> None:
        """It ends with the order."""

    def _ends(self) -> bool:
        """Update with what a push carries as soon as it is computed; whether no push follows.

        Then the model has what is to be measured.
        """
        if not self._items:
            self._downpour.flush()
            self._items.extend(next(self._order, ()))
            if self._items:
                self._downpour.fetch_again()
            else:
                self._downpour.fetch_now()
        return not self._items

    def _serve(self, shard: ReplayedShard, wires: Wires) -> None:
        compute_with(self._recording.shard_threads)
        while True:
            wires.transport.wait([shard.listener], LOOK_AGAIN_SECONDS)
            shard.serving.serve_waiting()


class _PushesWhenFlushed(Downpour):
    def push(self) -> None:
        """Not by the number of steps: a push of the run may have had fewer batches than others."""
