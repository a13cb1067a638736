"""Which files the coordinator writes for people and tools, and what its log says of decisions."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from disttrain.coordinator.decisions.machine import Coordinator
from disttrain.coordinator.journal import batch_entries, entries, job_entries, member_entries
from disttrain.coordinator.journal.job_entries import (
    CheckpointBegun,
    CheckpointEnded,
    EvaluationEnded,
)
from disttrain.coordinator.process.cluster_status import ClusterStatus
from disttrain.coordinator.process.served_metrics import ServedMetrics
from disttrain.coordinator.status import sections, status
from disttrain.coordinator.strategies.batch import status as batch_status
from disttrain.launch import atomic_file
from disttrain.launch.run_folder import RunFolder
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_STATUS_SECONDS = 0.5
_STATUS_SECONDS_PER_MEMBER = 0.003
"""So that a status, which tells of each member, takes less than a percent of a core."""
_METRICS_SECONDS = 2.0
_MOVES = (batch_entries.RunRolledBack, batch_entries.ShardPerformed)
"""After them a batch method may be at another point."""
_HALTED = (
    "the journal beside the checkpoints takes nothing more: once replicas have done what they "
    "hold, training halts until it has room and its files or its store can be read"
)


class RunFiles:
    """In the run folder. A full disk is no reason to stop: the next writing replaces this one."""

    def __init__(self, folder: Path) -> None:
        self._folder = RunFolder(folder)
        self._status = atomic_file.KeptFile(self._folder.status)

    def write_status(self, status: dict[str, Any]) -> None:
        """Replaces status.json: a reader sees it whole. A full disk takes it, too."""
        with suppress(OSError):
            self._status.replace(_text(status))

    def close(self) -> None:
        with suppress(OSError):
            self._status.close()

    def write_summary(self, summary: dict[str, Any]) -> None:
        with suppress(OSError):
            atomic_file.replace(self._folder.summary, _text(summary))

    def add_metrics(self, line: dict[str, Any]) -> None:
        file = self._folder.metrics
        # Path.open has no opener.
        with suppress(OSError), open(file, "a", opener=logs.open_to_append) as stream:
            stream.write(json.dumps(line) + "\n")


def _text(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=2).encode()


class Reporting:
    """Belongs to the coordinator's thread."""

    def __init__(
        self,
        machine: Coordinator,
        files: RunFiles,
        metrics: ServedMetrics,
        cluster: ClusterStatus | None = None,
        *,
        losses_are_exact: bool,
    ) -> None:
        """`cluster`: writes the status of the job's object, if it has one.

        `losses_are_exact`: what shards have acknowledged outlives whatever ends them.
        """
        self._machine = machine
        self._files = files
        self._metrics = metrics
        self._cluster = cluster
        self._losses_are_exact = losses_are_exact
        self.is_halted = False
        """The journal takes nothing, and without it nothing is decided."""
        self._next_status = 0.0
        self._next_line = 0.0
        self._checkpoint_began = 0.0
        self._measure_warning: str | None = None
        """That the log has."""
        self._iteration = 0
        """That the log has of a batch method."""

    def write_if_due(self, now: float, dropped: Mapping[str, int]) -> None:
        """Writes status.json and a line of metrics.jsonl every so often.

        `dropped`: messages that the transport did not let through, by reason.
        """
        machine = self._machine
        self._metrics.health.iterated()
        if now >= self._next_status:
            members = len(machine.watch.heard)
            self._next_status = now + max(_STATUS_SECONDS, members * _STATUS_SECONDS_PER_MEMBER)
            self._files.write_status(self._status(now))
            self._metrics.update(machine, now, dropped)
            if self._cluster is not None:
                self._cluster.offer(lambda: self._cluster_fields(now), now)
        if now >= self._next_line and machine.state.began is not None:
            self._next_line = now + _METRICS_SECONDS
            line = status.metrics_line(machine.state, machine.stages, machine.watch, now)
            self._files.add_metrics({"time": now, **line})

    def note(self, entry: entries.Entry, now: float) -> None:
        """Logs what people want to know, and writes what must not wait."""
        if isinstance(entry, EvaluationEnded):
            self._note_evaluation(entry, now)
        elif isinstance(entry, CheckpointBegun):
            self._checkpoint_began = entry.now
        elif isinstance(entry, CheckpointEnded):
            self._checkpoint_ended(entry, now)
        elif isinstance(entry, job_entries.PhaseChanged):
            self._phase_changed(entry, now)
        else:
            _note_member(entry)
            self._note_method(entry)
            self._note_run(entry)

    def ready(self, patience_seconds: float) -> None:
        """Says over HTTP that this process serves, and that it hangs if an iteration takes so long.

        An iteration of its loop writes what is due.
        """
        self._metrics.health.is_ready = True
        self._metrics.health.begin(patience_seconds)

    def finish(self, now: float) -> None:
        self._files.write_status(self._status(now))
        if not self._machine.state.phase.ended:
            return
        machine = self._machine
        found = status.summary(machine.state, machine.stages, machine.watch, now)
        self._files.write_summary({**found, **self._exactness()})

    def close(self, now: float) -> None:
        self._files.close()
        if self._cluster is not None:
            self._cluster.close(self._cluster_fields(now), now)

    def _cluster_fields(self, now: float) -> dict[str, Any]:
        machine = self._machine
        return sections.of_object(machine.state, machine.stages, machine.watch, now)

    def _note_evaluation(self, entry: EvaluationEnded, now: float) -> None:
        state = self._machine.state
        self._files.add_metrics({"time": now, **status.evaluation_line(state)})
        LOG.info("evaluated", **entry.evaluation.measures, loss=entry.evaluation.loss)
        warning = sections.measure_warning(state)
        if warning and warning != self._measure_warning:
            LOG.warning(warning)
            self._measure_warning = warning

    def _checkpoint_ended(self, entry: CheckpointEnded, now: float) -> None:
        LOG.info("checkpoint", number=entry.number, failure=entry.message or "none")
        if entry.committed and self._checkpoint_began:
            self._metrics.checkpoint_seconds.observe(now - self._checkpoint_began)

    def _note_method(self, entry: entries.Entry) -> None:
        if isinstance(entry, batch_entries.WarmStartEnded):
            LOG.info("warm start is processed", samples=self._machine.state.samples)
        elif isinstance(entry, batch_entries.RollbackBegun):
            LOG.warning("all return to the checkpoint", reason=entry.reason)
        elif isinstance(entry, batch_entries.SnapshotDamaged):
            LOG.error(
                "all return to the checkpoint before one that is damaged", reason=entry.reason
            )
        elif isinstance(entry, batch_entries.RulesChanged):
            for change in entry.changes:
                LOG.warning("the manifest has changed since the checkpoint", change=change)
        elif isinstance(entry, batch_entries.RunBegun):
            size = entry.rules.groups_of_a_batch or entry.groups
            LOG.info("batch method begins", groups=size)
            if warning := batch_status.warning(size, self._machine.settings.replicas):
                LOG.warning(warning)

    def _note_run(self, entry: entries.Entry) -> None:
        batch = self._machine.state.batch
        if batch is None or not isinstance(entry, _MOVES):
            return
        seen = batch.course.method.progress
        if isinstance(entry, batch_entries.RunRolledBack):
            LOG.info(
                "all are at the checkpoint", iteration=seen.iteration, incarnations=entry.shards
            )
        elif seen.iteration > self._iteration:
            LOG.info("point accepted", **batch_status.accepted(seen))
        self._iteration = seen.iteration

    def _phase_changed(self, entry: job_entries.PhaseChanged, now: float) -> None:
        reason = str(entry.reason or self._machine.state.reason or "")
        LOG.info("phase", phase=entry.phase.value, reason=reason)
        self._next_status = 0.0
        if entry.phase.ended:
            self.finish(now)

    def _status(self, now: float) -> dict[str, Any]:
        machine = self._machine
        found = status.status(machine.state, machine.stages, machine.watch, now)
        return {
            **found,
            **self._exactness(),
            "journalWarning": _HALTED if self.is_halted else None,
            "metricsAddress": self._metrics.address,
            "time": now,
        }

    def _exactness(self) -> dict[str, bool]:
        counted = status.counts_every_loss(self._machine.state, self._machine.watch)
        return {"updatesLostIsExact": self._losses_are_exact and counted}


def _note_member(entry: entries.Entry) -> None:
    if isinstance(entry, member_entries.MemberJoined):
        name = entry.member.process_name(entry.partitions)
        LOG.info("member joined", member=name, incarnation=entry.member.incarnation)
    elif isinstance(entry, member_entries.ShardRestored):
        name, taken = entry.member.name, entry.restored.checkpoint
        for number in entry.restored.damaged:
            LOG.error("checkpoint is damaged", number=number, found_by=name, taken_instead=taken)
    elif isinstance(entry, member_entries.LeasesExpired):
        LOG.warning("silent: what it has not finished goes to others", member=entry.member.name)
    elif isinstance(entry, member_entries.MemberLost):
        LOG.warning("member lost", member=entry.member.name, reason=entry.reason)
