"""What a shard tells the coordinator about itself, and serves to Prometheus."""

from collections.abc import Callable, Mapping

from disttrain.coordinator.protocol.fields import LostUpdates, Position, SenderPosition
from disttrain.coordinator.protocol.messages import MOST_DAMAGED, Restored, RestoredSender
from disttrain.coordinator.protocol.reports import STALENESS_BOUNDS, ShardReport, staleness_bucket
from disttrain.parameter_server.acknowledged import Count
from disttrain.parameter_server.deliveries import NOTHING, Delivered, SenderIncarnation
from disttrain.parameter_server.restoring import RestoredShard
from disttrain.parameter_server.shard import Shard


def position_of(incarnation: SenderIncarnation, state: Delivered) -> SenderPosition:
    return SenderPosition(
        index=incarnation.sender,
        incarnation=incarnation.incarnation,
        position=Position(lease=state.lease, offset=state.lease_offset),
        samples=state.samples,
    )


def restored_report(
    restored: RestoredShard | None, counts: Mapping[SenderIncarnation, Count]
) -> Restored | None:
    """What goes into the join of a shard; None for one that has nothing behind it.

    `counts` are those after the rollback to what is restored.
    """
    if restored is None and not counts:
        return None
    delivered = restored.delivered if restored is not None else {}
    return Restored(
        initialised=restored is not None,
        checkpoint=restored.checkpoint if restored is not None else None,
        version=restored.version if restored is not None else 0,
        damaged=restored.damaged[:MOST_DAMAGED] if restored is not None else (),
        senders=tuple(
            _restored_sender(
                incarnation, delivered.get(incarnation, NOTHING), counts.get(incarnation, Count())
            )
            for incarnation in sorted({*delivered, *counts})
        ),
    )


def _restored_sender(
    incarnation: SenderIncarnation, state: Delivered, count: Count
) -> RestoredSender:
    return RestoredSender(
        sender=position_of(incarnation, state),
        acknowledged=count.pushes + count.lost,
        lost=count.lost,
    )


class Reporter:
    """Counts what the loop spends its time on; makes the reports. The shard's thread."""

    def __init__(self, shard: Shard, clock: Callable[[], float]) -> None:
        self.busy_seconds = 0.0
        self.doing = "serving"
        self.shard = shard
        self._clock = clock
        self._began = clock()

    def report(self) -> ShardReport:
        state, records = self.shard.state, self.shard.records
        histogram = [0] * len(STALENESS_BOUNDS)
        for staleness, count in records.staleness.items():
            if staleness >= 0:
                histogram[staleness_bucket(staleness)] += count
        return ShardReport(
            version=state.count,
            applied=records.pushes,
            refused=dict(self.shard.refused),
            staleness=tuple(histogram),
            staleness_unknown=records.staleness.get(-1, 0),
            busy_seconds=self.busy_seconds,
            uptime_seconds=self._clock() - self._began,
            uncounted=records.num_uncounted,
            rate=self.shard.stage.rate if state.is_initialised else None,
            state=self.doing if state.is_initialised else "waiting for values",
            lost=tuple(
                LostUpdates(
                    index=incarnation.sender, incarnation=incarnation.incarnation, lost=lost
                )
                for incarnation, lost in records.corrected.items()
            ),
        )
