"""A shard's process: joins the coordinator, restores, serves replicas and carries out commands."""

import os
import signal
import sys
import time
from dataclasses import dataclass, field
from functools import partial

import torch

from disttrain.checkpoint import stores
from disttrain.coordinator.errors import JobOver
from disttrain.coordinator.protocol import commands
from disttrain.coordinator.protocol.commands import NumberedCommand, Result
from disttrain.coordinator.protocol.control import CHANCE, Chance, ControlConnection
from disttrain.coordinator.protocol.fields import Restored
from disttrain.coordinator.protocol.messages import Join, Joined, Leave, Placed
from disttrain.coordinator.protocol.reports import ShardReport
from disttrain.job import defaults
from disttrain.job.spec import Audit
from disttrain.launch.config import LaunchConfig
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.run_folder import RunFolder
from disttrain.parameter_server import ledger, recovery, reporting, strategies
from disttrain.parameter_server.commands import CommandRunner
from disttrain.parameter_server.deliveries import Coverage, NotesAtCuts, SenderIncarnation
from disttrain.parameter_server.final_snapshot import GracefulShutdown
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.ledger import Ledger
from disttrain.parameter_server.records import Records, present_environment, write_environment
from disttrain.parameter_server.recovery import Losses, log_lost, record_start
from disttrain.parameter_server.reporting import (
    Reporter,
    ServedMetrics,
    mean_staleness,
)
from disttrain.parameter_server.restoring import RestoredShard
from disttrain.parameter_server.serving import Serving
from disttrain.parameter_server.shard import Shard
from disttrain.state.share import Share
from disttrain.telemetry import logs
from disttrain.transport.factory import open_transport
from disttrain.transport.header import Role
from disttrain.transport.interface import Listener, Transport

LOG = logs.get(__name__)

_CONTROL_SECONDS = 0.01
"""How often the coordinator is listened to while replicas keep the shard busy."""
_SWITCH_SECONDS = 0.0005
"""How long the checkpoint's thread may keep the interpreter; the default, 5 ms, is ten chunks."""
_LEAVE_SECONDS = 1.0


def main(config: LaunchConfig) -> int:
    torch.set_num_threads(config.threads)
    sys.setswitchinterval(_SWITCH_SECONDS)
    transport = open_transport(config.transport_config)
    try:
        listener = transport.listen(str(config.listen_address))
        metrics = ServedMetrics(config.metrics_address)
        process = join(config, Surroundings(transport, listener, metrics))
        signal.signal(signal.SIGTERM, lambda *_: process.stop())
        process.metrics.health.is_ready = True
        return process.run(config.job.spec.coordinator.member_timeout_seconds)
    except JobOver as error:
        LOG.info("came too late", reason=error)
        return ExitCode.COMPLETE
    finally:
        transport.close()


@dataclass(slots=True)
class ShardProcess:
    """The loop of one shard; one thread."""

    transport: Transport
    listener: Listener
    control: ControlConnection
    serving: Serving
    runner: CommandRunner
    reporter: Reporter
    metrics: ServedMetrics
    shutdown: GracefulShutdown | None = None
    """What an incarnation that was told to end does for the next one; None: nothing."""
    idle_seconds: float = 0.05
    """Between two looks at what is due, while nobody asks for anything."""
    _stopping: bool = field(default=False)
    _next_control: float = field(default=0.0)
    _epoch: int = field(default=-1)
    """Of the replicas that are served."""
    _fenced: dict[int, SenderIncarnation] = field(default_factory=dict)
    """By the number of the request that says how far it got."""
    _unanswered: set[int] = field(default_factory=set)
    """Numbers of requests that must be answered before the process may end."""

    def run(self, patience_seconds: float) -> int:
        """Serve until the coordinator or SIGTERM ends it. Raises MemberFenced.

        Over HTTP it hangs if an iteration takes so long, as it does for the coordinator.
        """
        health = self.metrics.health
        health.begin(patience_seconds)
        while not (self.runner.is_ended or self._may_stop()):
            health.iterated()
            if not self._serve():
                self._wait()
            self.reporter.shard.stage.advance()
            self._listen_to_coordinator()
        health.end()
        if self._stopping:
            self._leave()
        return self._say_goodbye()

    def stop(self) -> None:
        self._stopping = True

    def _may_stop(self) -> bool:
        if self.shutdown is None or not self._stopping:
            return self._stopping
        return self.shutdown.is_due(self.transport.now()) and not self.runner.is_writing

    def _serve(self) -> bool:
        began = time.perf_counter()
        handled = self.serving.serve_waiting()
        if handled and self.shutdown is not None:
            self.shutdown.asked = self.transport.now()
        if handled:
            self.reporter.busy_seconds += time.perf_counter() - began
        return handled > 0

    def _wait(self) -> None:
        """Return when somebody wants something; what the coordinator wants is heard at once."""
        channel = self.control.channel
        seconds = _CONTROL_SECONDS if self.runner.is_writing else self.idle_seconds
        if channel in self.transport.wait([self.listener, channel], seconds):
            self._next_control = 0.0

    def _listen_to_coordinator(self) -> None:
        now = self.transport.now()
        if now < self._next_control:
            return
        self._next_control = now + _CONTROL_SECONDS
        self.reporter.doing = "checkpointing" if self.runner.is_writing else "serving"
        received = self.control.poll(self._report)
        self._unanswered.difference_update(received.replies)
        for number in self._fenced.keys() & received.replies.keys():
            # The answer is in the coordinator's journal.
            self.runner.coverage.end(self._fenced.pop(number))
        self._follow_replicas()
        done = [(one, self.runner.carry_out(one)) for one in received.commands]
        if finished := self.runner.finished():
            done.append(finished)
        self._answer([(one, result) for one, result in done if result is not None])

    def _follow_replicas(self) -> None:
        latest = self.control.latest
        if latest.replicas is not None and latest.epoch != self._epoch:
            self._epoch = latest.epoch
            self.reporter.shard.admit_only(latest.replicas)
            self.serving.instances = latest.instances

    def _report(self) -> ShardReport:
        served, shard = self.metrics, self.reporter.shard
        served.report = self.reporter.report()
        served.incarnation = self.control.member.incarnation
        served.at_risk = served.report.version - self.runner.checkpointed
        served.mean_staleness = mean_staleness(shard.state.deliveries)
        served.pushed_bytes = self.serving.pushed_bytes
        served.fetched_bytes = self.serving.fetched_bytes
        served.waited_seconds = shard.stage.waited_seconds
        served.batch = shard.stage.figures
        served.dropped = self.listener.refused
        served.missing = shard.records.num_missing
        served.update()
        return served.report

    def _answer(self, done: list[tuple[NumberedCommand, Result]]) -> None:
        if not done:
            return
        numbers = self.control.answer(done, self._report)
        self._unanswered.update(numbers)
        for number, (command, _) in zip(numbers, done, strict=True):
            if isinstance(command.order, commands.Fence):
                self._fenced[number] = SenderIncarnation(
                    command.order.index, command.order.incarnation
                )

    def _leave(self) -> None:
        saved = self.shutdown is not None and self.shutdown.save(self.runner.checkpoint)
        leave = Leave(member=self.control.member, reason="SIGTERM", saved=saved)
        self._unanswered.add(self.control.request(leave))

    def _say_goodbye(self) -> int:
        """Give the last answers time to leave."""
        end = self.transport.now() + _LEAVE_SECONDS
        while self._unanswered and self.transport.now() < end:
            self._unanswered.difference_update(self.control.poll(None, wait=0.01).replies)
        LOG.info("ended", reason="SIGTERM" if self._stopping else "the job is over")
        return 0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a shard's process reaches beside its folders."""

    transport: Transport
    listener: Listener
    metrics: ServedMetrics
    chance: Chance = CHANCE
    pid: int = field(default_factory=os.getpid)


def join(config: LaunchConfig, surroundings: Surroundings) -> ShardProcess:
    """Restore what there is, and join. Raises NotJoined, CoordinatorSilent, StoreAway."""
    transport, listener = surroundings.transport, surroundings.listener
    metrics = surroundings.metrics
    shards = config.job.spec.shards
    ledger_folder = RunFolder(config.run_folder).ledger
    losses = Losses(ledger_folder, config.shard_index, shards)
    control = _control(config, surroundings)
    before = control.ask_placement(timeout=config.join_seconds)
    restored = _restored(config, before, transport.chunk_bytes)
    log_lost(losses.settle(restored), config.supervisor)
    known = reporting.restored_report(restored, losses.counts())
    joined = control.join(_introduction(config, surroundings, known), timeout=config.join_seconds)
    records = _records(config, joined, losses)
    if config.job.spec.record:
        write_environment(ledger_folder, present_environment(transport.chunk_bytes))
    record_start(records, restored, losses)
    shard = _shard(config, joined, restored, records, transport.chunk_bytes)
    shard.state.clock = transport.now
    shutdown = _graceful_shutdown(config, shard, restored)
    serving = Serving(listener, shard)
    serving.instances = joined.instances
    open_parts = stores.open_parts(config.checkpoints)
    reload = partial(recovery.reload, config, before.layout)
    runner = CommandRunner(shard, serving, transport.chunk_bytes, metrics, open_parts, reload)
    runner.checkpoint = restored.checkpoint if restored is not None else 0
    kept = config.job.spec.checkpoint.keep_last
    runner.coverage = Coverage(kept, _over(joined, restored, losses))
    runner.foldable = NotesAtCuts(kept)
    return ShardProcess(
        transport=transport,
        listener=listener,
        control=control,
        serving=serving,
        runner=runner,
        reporter=Reporter(shard, transport.now),
        metrics=metrics,
        shutdown=shutdown,
    )


def _restored(config: LaunchConfig, before: Placed, chunk_bytes: int) -> RestoredShard | None:
    """What an earlier incarnation left; nothing where no incarnation was told what it holds.

    Nor where this shard is none of the job's any more: the join says so.
    """
    placement, layout = before.placement, before.layout
    if placement is None or layout is None or config.shard_index >= len(placement.holders):
        return None
    return recovery.restore(config, Share(placement, config.shard_index, chunk_bytes), layout)


def _graceful_shutdown(
    config: LaunchConfig, shard: Shard, restored: RestoredShard | None
) -> GracefulShutdown | None:
    saver = recovery.saver(config)
    if saver is None:
        return None
    shutdown = GracefulShutdown(shard, saver)
    shutdown.begin(restored.saved_by if restored is not None else 0)
    return shutdown


def _over(joined: Joined, restored: RestoredShard | None, losses: Losses) -> set[SenderIncarnation]:
    """Incarnations whose end the join has told: all that are known here and not served any more."""
    known = {*losses.own.counts(), *(restored.delivered if restored is not None else ())}
    return {
        incarnation
        for incarnation in known
        if joined.replicas.get(incarnation.sender) != incarnation.incarnation
    }


def _control(config: LaunchConfig, surroundings: Surroundings) -> ControlConnection:
    transport = surroundings.transport
    channel = transport.connect(config.coordinator_address)
    heartbeat = config.job.spec.coordinator.heartbeat_seconds
    return ControlConnection(channel, Role.SHARD, heartbeat, transport.now, surroundings.chance)


def _introduction(config: LaunchConfig, surroundings: Surroundings, known: Restored | None) -> Join:
    return Join(
        role=Role.SHARD,
        index=config.index,
        instance=config.new_instance(),
        pid=surroundings.pid,
        data_address=config.announce_address or surroundings.listener.address,
        metrics_address=surroundings.metrics.address,
        restored=known,
    )


def _records(config: LaunchConfig, joined: Joined, losses: Losses) -> Records:
    incarnation = joined.member.incarnation
    folder = RunFolder(config.run_folder).ledger
    path = ledger.path_of(folder, config.shard_index, incarnation)
    audit = defaults.audit(config.job.spec)
    return Records(
        incarnation=incarnation,
        acknowledged=losses.own,
        losses_are_whole=losses.are_whole,
        ledger=None if audit is Audit.OFF else Ledger(path),
        every_chunk=config.job.spec.record,
        folds=audit is Audit.SUMMARY,
    )


def _shard(
    config: LaunchConfig,
    joined: Joined,
    restored: RestoredShard | None,
    records: Records,
    chunk_bytes: int,
) -> Shard:
    state = ShardState(
        index=config.shard_index,
        incarnation=joined.member.incarnation,
        train_samples=joined.train_samples,
    )
    shard = Shard(strategies.stages(config.job.spec, state, records))
    if restored is not None:
        shard.restore(restored)
    # Nobody else may push: a rollback must not let in what was fenced before it.
    shard.admit_only(joined.replicas)
    if joined.placement is not None:
        shard.configure(joined.placement, chunk_bytes)
    return shard
