"""What a replica tells the coordinator in each heartbeat."""

from disttrain.coordinator.protocol.fields import Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.replica.downpour import Counters
from disttrain.replica.fetch_thread import FetchThread
from disttrain.replica.leases import LostLeases
from disttrain.replica.pushes import PushThread


def progress(pushes: PushThread, lost: LostLeases) -> Progress:
    """What is finished: acknowledged by all shards, or given up."""
    acknowledged = pushes.acknowledged
    return Progress(
        position=acknowledged.position,
        samples=acknowledged.samples,
        abandoned=lost.given_up(acknowledged.position),
    )


def replica_report(
    counters: Counters, pushes: PushThread, fetches: FetchThread, lost: LostLeases
) -> ReplicaReport:
    """The counters as they are now; any thread may ask."""
    waited = pushes.waited_seconds + fetches.waited_seconds
    return ReplicaReport(
        progress=progress(pushes, lost),
        steps=counters.steps,
        pushes=pushes.acknowledged.pushes,
        loss_sum=counters.loss_sum,
        loss_steps=counters.loss_steps,
        reported_sums=counters.reported.sums,
        reported_steps=counters.reported.steps,
        non_finite=counters.non_finite,
        non_finite_lease=counters.non_finite_lease,
        staleness=tuple(pushes.staleness),
        staleness_unknown=pushes.staleness_unknown,
        compute_seconds=max(0.0, counters.step_seconds - waited),
        data_seconds=counters.data_seconds,
        push_seconds=pushes.waited_seconds,
        fetch_seconds=fetches.waited_seconds,
    )
