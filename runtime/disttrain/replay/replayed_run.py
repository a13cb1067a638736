"""All replayed shards and replicas: each in threads of its own, which take turns.

Shards and replicas follow their logs, and wait for one another as in the run. What is waited for
happened before, in the run, so this ends.
"""

from functools import partial

import numpy as np

from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.ledger import Kind
from disttrain.replay.asynchrony import Observer
from disttrain.replay.comparing import ComparingLedger, Differences, RecordContradicted
from disttrain.replay.recording import Recording
from disttrain.replay.replica import Learner, ReplayedReplica
from disttrain.replay.shard import ReplayedShard, sender
from disttrain.replay.wires import LOOK_AGAIN_SECONDS, Wires, compute_with
from disttrain.transport.header import Verb
from disttrain.transport.virtual_time import Bell


class ReplayedRun:
    """One replay."""

    def __init__(self, recording: Recording, observer: Observer) -> None:
        compute_with(recording.replica_threads)
        self.differences = Differences()
        self.replicas: dict[SenderIncarnation, ReplayedReplica] = {}
        self._recording = recording
        self._observer = observer
        incarnations = [log.incarnation for log in recording.shards]
        self._wires = Wires(recording.placement, recording.chunk_bytes, incarnations)
        self._has_come = Bell(self._wires.time)
        self.shards = [
            ReplayedShard(recording, log, recording.placement, self._wires)
            for log in recording.shards
        ]
        # All incarnations build the same initial values from the job's seed, so any of them can
        # upload.
        model = Learner(recording, outgoing_buffers=0).model
        for shard in self.shards:
            shard.begin_with(model.values_to_upload())

    def run(self, updates: int | None = None) -> None:
        """To the end of the logs, or until every shard has applied so many updates."""
        time = self._wires.time
        try:
            for shard in self.shards:
                time.start(partial(self._follow, shard, updates))
            while not all(_has_come(shard, updates) for shard in self.shards):
                time.wait(LOOK_AGAIN_SECONDS, [self._has_come])
        finally:
            time.close()

    def _follow(self, shard: ReplayedShard, updates: int | None) -> None:
        """A shard that has all its updates goes on only where another one would never have its."""
        compute_with(self._recording.shard_threads)
        while not shard.is_over:
            if _has_come(shard, updates):
                self._has_come.ring()
                while self._wires.idle_seconds < LOOK_AGAIN_SECONDS:
                    # A shard that says nothing for some seconds is taken for a dead one.
                    shard.receive(LOOK_AGAIN_SECONDS)
            self._carry_out(shard, shard.log[shard.position])
            shard.position += 1
        self._has_come.ring()

    def _carry_out(self, shard: ReplayedShard, record: np.void) -> None:
        incarnation, number, kind = sender(record), int(record["sequence"]), record["kind"]
        if kind in (Kind.CHUNK_APPLIED, Kind.CHUNK_FETCHED, Kind.REFUSED):
            self._serve(shard, record)
        elif kind == Kind.PUSHED:
            shard.compare(record, self.differences)
        else:
            shard.carry_out(record)
        if kind in (Kind.PUSHED, Kind.REFUSED):
            staleness = shard.state.deliveries.of(*incarnation).staleness
            self._observer.answered(incarnation, number, staleness)

    def _serve(self, shard: ReplayedShard, record: np.void) -> None:
        incarnation = sender(record)
        if incarnation not in self.replicas:
            self._join(incarnation)
        request = shard.wait_for(record)
        if request.header.verb == Verb.PUSH:
            self._observer.meets(request.header, shard.values)
        shard.serve(request, record)

    def _join(self, incarnation: SenderIncarnation) -> None:
        if incarnation not in self._recording.replicas:
            raise RecordContradicted(
                f"the shards know replica-{incarnation.sender} "
                f"(incarnation {incarnation.incarnation}), it left no log"
            )
        ledger = ComparingLedger(
            incarnation, self._recording.replicas[incarnation], self.differences
        )
        replica = ReplayedReplica(self._recording, self._wires, ledger, self._observer)
        self.replicas[incarnation] = replica
        self._wires.time.start(replica.run)


def _has_come(shard: ReplayedShard, updates: int | None) -> bool:
    return shard.is_over or (updates is not None and shard.state.count >= updates)
