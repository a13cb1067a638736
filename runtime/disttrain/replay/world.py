"""All replayed shards and replicas, and who goes on when.

The shards follow their logs. A record that needs a push or a fetch lets the replica run until it
has got there; a replica that needs fetched values lets the shards go on. What is needed happened
before, in the run, so this ends.
"""

from collections.abc import Callable

import torch

from disttrain.parameter_server.deliveries import SenderLife
from disttrain.parameter_server.ledger import Kind
from disttrain.replay.comparing import Differences
from disttrain.replay.errors import RecordContradicted
from disttrain.replay.exchange import FetchUnderWay, PushUnderWay
from disttrain.replay.recording import Recording
from disttrain.replay.replica import ReplayedReplica
from disttrain.replay.shard import ReplayedShard, sender

Applied = Callable[[SenderLife, PushUnderWay, int], None]
"""Called with each push that all shards have applied, and its staleness on the last of them."""


class World:
    """One replay."""

    def __init__(self, recording: Recording, when_applied: Applied) -> None:
        torch.set_num_threads(recording.replica_threads)
        self.differences = Differences()
        self.replicas: dict[SenderLife, ReplayedReplica] = {}
        self._recording = recording
        self._when_applied = when_applied
        # All lives build the same initial values from the job's seed, so any of them can upload.
        first = min(recording.replicas, default=SenderLife(0, 1))
        uploader = ReplayedReplica(first, recording, self.differences)
        self.shards = [
            ReplayedShard(recording, log, recording.placement) for log in recording.shards
        ]
        for shard in self.shards:
            shard.begin_with(uploader.model.values_to_upload())
        self._join(uploader)

    def run(self, updates: int | None = None) -> None:
        """To the end of the logs, or until every shard has applied so many updates."""
        try:
            for shard in self.shards:
                while not shard.is_over and (updates is None or shard.state.count < updates):
                    self._advance(shard)
        finally:
            for replica in self.replicas.values():
                replica.end()

    def finish_push(self, push: PushUnderWay) -> None:
        while push.waiting:
            self._advance(self.shards[min(push.waiting)])

    def finish_fetch(self, fetch: FetchUnderWay) -> None:
        for shard in self.shards:
            while fetch.missing[shard.index]:
                self._advance(shard)

    def _advance(self, shard: ReplayedShard) -> None:
        if shard.is_busy or shard.is_over:
            message = (
                f"the replay needs more of {shard.name} than its log holds by then "
                f"(record {shard.position} of {len(shard.log)})"
            )
            raise RecordContradicted(message)
        shard.is_busy = True
        self._carry_out(shard)
        shard.position += 1
        shard.is_busy = False

    def _carry_out(self, shard: ReplayedShard) -> None:
        record = shard.log[shard.position]
        match record["kind"]:
            case Kind.CHUNK_APPLIED:
                replica = self._replica(sender(record))
                shard.apply(record, replica.push(int(record["sequence"])))
            case Kind.CHUNK_FETCHED:
                self._replica(sender(record)).fetches.give(shard.chunk(record))
            case Kind.PUSHED:
                shard.compare(record, self.differences)
                self._answered(shard, sender(record), int(record["sequence"]))
            case Kind.REFUSED:
                replica = self._replica(sender(record))
                shard.apply(record, replica.push(int(record["sequence"])))
                self._answered(shard, sender(record), int(record["sequence"]))
            case _:
                shard.carry_out(record)

    def _answered(self, shard: ReplayedShard, life: SenderLife, number: int) -> None:
        push = self._replica(life).pushes.answered(number, shard.index)
        if push is not None:
            known = shard.state.deliveries.of(life.sender, life.incarnation)
            self._when_applied(life, push, known.staleness)

    def _replica(self, life: SenderLife) -> ReplayedReplica:
        if life not in self.replicas:
            self._join(ReplayedReplica(life, self._recording, self.differences))
        return self.replicas[life]

    def _join(self, replica: ReplayedReplica) -> None:
        self.replicas[replica.life] = replica
        replica.join(self, [shard.share for shard in self.shards])
