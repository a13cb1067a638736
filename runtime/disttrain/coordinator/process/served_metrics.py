"""The coordinator's Prometheus metrics, set from its state and served over HTTP."""

import math
from collections.abc import Callable, Mapping
from itertools import islice

from disttrain.coordinator.decisions.machine import Coordinator
from disttrain.coordinator.journal.state import Phase, State
from disttrain.coordinator.settings import Settings
from disttrain.coordinator.status import progress
from disttrain.job.roles import Durability
from disttrain.telemetry import exporter, metrics
from disttrain.telemetry.health import Health
from disttrain.transport.header import Role

_MOST_MEASURES = 50
"""A task chooses their names, and each is a series that a scraper keeps."""


class ServedMetrics:
    """Counters follow the state's, which never go back within a process."""

    def __init__(self, address: str) -> None:
        """Serve on `address`. Raises MetricsAddressError."""
        registry = metrics.new_registry()
        self._metrics = metrics.CoordinatorMetrics(registry)
        self._batch = metrics.BatchMetrics(registry)
        self._counted: dict[str, float] = {}
        self._dropped: dict[str, int] = {}
        self._measured: set[str] = set()
        self.health = Health()
        """Of the process."""
        self.address = exporter.start(address, registry, self.health)
        for role in (Role.REPLICA, Role.SHARD):
            # So that the first restart is an increase, too.
            self._metrics.restarts.labels(role=role.name.lower())

    def update(self, machine: Coordinator, now: float) -> None:
        """Sets everything; at most a few times a second."""
        self._update_gauges(machine, now)
        self._update_expectations(machine.state, machine.settings)
        state, found = machine.state, self._metrics
        counters = {
            "portions_done": (found.portions_done, state.data.portions_done),
            "portions_requeued": (found.portions_requeued, state.data.portions_requeued),
            "samples_repeated": (found.samples_repeated, state.data.samples_repeated),
            "updates_lost": (found.updates_lost, sum(state.totals.updates_lost.values())),
            "failures": (found.checkpoint_failures, state.totals.checkpoint_failures),
            "damaged": (found.checkpoints_damaged, len(state.totals.damaged_checkpoints)),
        }
        for name, (counter, value) in counters.items():
            self._count(name, counter.inc, value)
        self._update_batch(state)
        for role, value in state.totals.restarts.items():
            found.restarts.labels(role=role).inc(max(0.0, value - self._counted.get(role, 0.0)))
            self._counted[role] = value

    def checkpoint_took(self, seconds: float) -> None:
        """A whole checkpoint, from the ledger's cut to the manifest."""
        self._metrics.checkpoint_seconds.observe(seconds)

    def dropped(self, refused: Mapping[str, int]) -> None:
        """What the transport has dropped so far, by reason."""
        for reason, count in refused.items():
            counted = self._dropped.get(reason, 0)
            self._metrics.messages_dropped.labels(reason).inc(count - counted)
            self._dropped[reason] = count

    def _count(self, name: str, add: Callable[[float], None], value: float) -> None:
        # A loss may be taken back; a counter goes only up, and counts none of them twice.
        known = self._counted.get(name, 0.0)
        add(max(0.0, value - known))
        self._counted[name] = max(value, known)

    def _update_batch(self, state: State) -> None:
        batch, found = state.batch, self._batch
        if batch is None:
            return
        progress = batch.course.method.progress
        found.iteration.set(progress.iteration)
        found.evaluations.set(progress.evaluations)
        found.objective.set(progress.loss)
        found.gradient_norm.set(progress.largest)
        found.returns.set(batch.returns)
        self._count("groups_done", found.groups_done.inc, batch.all_groups_done)
        self._count("groups_requeued", found.groups_requeued.inc, batch.all_requeued)
        self._count("groups_copied", found.groups_copied.inc, batch.all_copies)

    def _update_gauges(self, machine: Coordinator, now: float) -> None:
        state, watch, found = machine.state, machine.watch, self._metrics
        speed = watch.samples_per_second()
        estimate = progress.estimate(state, machine.stages[-1], now, speed)
        for role, lives in ((Role.REPLICA, state.replicas), (Role.SHARD, state.shards)):
            count = sum(life.live for life in lives.values())
            found.members.labels(role=role.name.lower()).set(count)
        for phase in Phase:
            found.phase.labels(phase=phase.value).set(phase is state.phase)
        found.samples.set(state.samples)
        found.epoch.set(progress.epochs_processed(state))
        found.progress.set(estimate.fraction)
        found.remaining_seconds.set(estimate.remaining_seconds or 0.0)
        found.samples_per_second.set(speed)
        loss = machine.strategy.loss(state, watch)
        found.loss.set(loss if loss is not None else 0.0)
        if state.evaluations:
            measures = dict(islice(state.evaluations[-1].measures.items(), _MOST_MEASURES))
            # One by one: a scrape meanwhile must not miss those that stay.
            for name in self._measured - measures.keys():
                found.measure.remove(name)
            self._measured = set(measures)
            for name, value in measures.items():
                found.measure.labels(name=name).set(value)

    def _update_expectations(self, state: State, settings: Settings) -> None:
        found = self._metrics
        replicas = state.num_live_replicas
        found.shards_wanted.set(settings.shards)
        found.staleness_bound.set(settings.staleness_bound * max(replicas, 1))
        saved, never = state.saved, settings.durability is Durability.NONE
        safe = saved.time if saved is not None else state.began
        found.checkpoint_timestamp.set(math.nan if safe is None else safe)
        found.checkpoint_interval.set(math.inf if never else settings.checkpoint_seconds)
