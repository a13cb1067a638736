"""The coordinator's Prometheus metrics, read from its state and served over HTTP."""

import math
from collections.abc import Mapping
from itertools import islice

from disttrain.coordinator.decisions.machine import Coordinator
from disttrain.coordinator.journal.batch_state import Batch
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.phases import Phase
from disttrain.coordinator.settings import Settings
from disttrain.coordinator.status import progress
from disttrain.job.roles import Durability
from disttrain.sandblaster.method import Progress
from disttrain.telemetry import metrics
from disttrain.telemetry.exporter import Served
from disttrain.telemetry.metrics import Histogram, Metrics, counter, counters, gauge, gauges

_MOST_MEASURES = 50
"""A task chooses their names, and each is a series that a scraper keeps."""


class ServedMetrics(Served):
    """Counters follow the state's; nothing is served before the first update."""

    def __init__(self, address: str) -> None:
        """Serve on `address`. Raises MetricsAddressError."""
        super().__init__(address)
        self.checkpoint_seconds = Histogram()
        """Of whole checkpoints, from the ledger's snapshot to the manifest."""

    def update(self, machine: Coordinator, now: float, dropped: Mapping[str, int]) -> None:
        """Sets everything; at most a few times a second.

        `dropped`: what the transport has dropped so far, by reason.
        """
        checkpoints = self.checkpoint_seconds.served(
            "job_checkpoint_seconds", "Time of whole checkpoints."
        )
        self.serve((*of(machine, now), checkpoints, metrics.messages_dropped(dropped)))


def of(machine: Coordinator, now: float) -> Metrics:
    return (
        *_progress(machine, now),
        *_counters(machine.state),
        *_expectations(machine.state, machine.settings),
        *_batch(machine.state.batch),
    )


def _progress(machine: Coordinator, now: float) -> Metrics:
    state, watch = machine.state, machine.watch
    speed = watch.samples_per_second()
    estimate = progress.estimate(state, machine.stages[-1], now, speed)
    left = estimate.remaining_seconds or 0.0
    epochs = progress.epochs_processed(state)
    loss = machine.strategy.loss(state, watch) or 0.0
    measures = state.evaluations[-1].measures if state.evaluations else {}
    shown = dict(islice(measures.items(), _MOST_MEASURES))
    phases = {phase.value: float(phase is state.phase) for phase in Phase}
    roles = {"replica": state.replicas, "shard": state.shards}
    members = {
        role: sum(one.takes_part for one in groups.values()) for role, groups in roles.items()
    }
    return (
        gauges("job_phase", "1 for the phase that the job is in, else 0.", "phase", phases),
        gauges("members", "Members that live, by role.", "role", members),
        gauge("job_samples", "Training samples that the job has processed.", state.samples),
        gauge("epoch", "Epochs done, with the fraction of the current one.", epochs),
        gauge(
            "progress_ratio", "How much of the job is done, from 0 to 1.", estimate.fraction or 0
        ),
        gauge("remaining_seconds", "Estimated time to the end.", left),
        gauge("samples_per_second", "Samples per second of all replicas.", speed),
        gauge(
            "job_loss",
            "Mean training loss over the replicas; of a batch method its objective.",
            loss,
        ),
        gauges("measure", "Latest measures on the test split.", "name", shown),
    )


def _counters(state: State) -> Metrics:
    data, totals = state.data, state.totals
    # With zeros, so that the first restart is an increase, too.
    restarts = {"replica": 0, "shard": 0, **totals.restarts}
    lost, damaged = sum(totals.updates_lost.values()), len(totals.damaged_checkpoints)
    return (
        counters("restarts", "Restarts of processes by role.", "role", restarts),
        counter("portions_done", "Portions processed completely.", data.portions_done),
        counter("portions_requeued", "Portions given out again.", data.portions_requeued),
        counter("samples_repeated", "Samples processed more than once.", data.samples_repeated),
        counter(
            "updates_lost",
            "Acknowledged updates lost with a shard; on a cluster at least so many.",
            lost,
        ),
        counter("job_checkpoint_failures", "Checkpoints that failed.", totals.checkpoint_failures),
        counter("job_checkpoints_damaged", "Checkpoints that a shard found damaged.", damaged),
    )


def _expectations(state: State, settings: Settings) -> Metrics:
    bound = settings.staleness_bound * max(state.num_live_replicas, 1)
    safe = state.saved.time if state.saved is not None else state.began
    never = settings.durability is Durability.NONE
    return (
        gauge("shards_wanted", "Shards that the job asks for.", settings.shards),
        gauge(
            "staleness_bound_updates",
            "Staleness that replicas of about equal speed stay far below.",
            bound,
        ),
        # Since 1970; NaN before training.
        gauge(
            "job_checkpoint_timestamp_seconds",
            "When the last complete checkpoint was begun, or training before the first.",
            math.nan if safe is None else safe,
        ),
        gauge(
            "job_checkpoint_interval_seconds",
            "Time between checkpoints that the job asks for.",
            math.inf if never else settings.checkpoint_seconds,
        ),
    )


def _batch(batch: Batch | None) -> Metrics:
    """Zeros for other strategies."""
    seen, counts = Progress(loss=0.0, largest=0.0), (0, 0, 0, 0)
    if batch is not None:
        seen = batch.course.method.progress
        counts = batch.returns, batch.all_groups_done, batch.all_requeued, batch.all_copies
    returns, done, requeued, copies = counts
    return (
        gauge("sandblaster_iteration", "Points that a batch method has accepted.", seen.iteration),
        gauge("sandblaster_evaluations", "Evaluations of loss and gradient.", seen.evaluations),
        gauge("sandblaster_objective", "Loss over the batch at the accepted point.", seen.loss),
        gauge(
            "sandblaster_gradient_max_norm",
            "Largest absolute value of the gradient's elements there.",
            seen.largest,
        ),
        gauge("sandblaster_rollbacks", "How often all went back to a checkpoint.", returns),
        counter("sandblaster_groups_done", "Groups of portions that count.", done),
        counter("sandblaster_groups_requeued", "Groups that came back without a result.", requeued),
        counter(
            "sandblaster_backup_tasks",
            "Backup tasks: copies of groups that somebody had begun.",
            copies,
        ),
    )
