"""What status.json, metrics.jsonl and summary.json say. Pure: JSON values out of the state."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from disttrain.coordinator.journal.group import Group
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.protocol import reports
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.reports import ReplicaReport, ShardReport
from disttrain.coordinator.status import progress, sections
from disttrain.coordinator.status.progress import Stage, at_work
from disttrain.coordinator.status.watch import Watch
from disttrain.job import stop

Json = dict[str, Any]
TimeShares = dict[str, float]
"""Fractions of the replicas' time, by what they do: computing, or waiting for one of three."""

_LIMITS_FROM = 0.25
"""A wait that takes less is no advice: without it the job would be a third faster at most."""
_BUSY_SHARD = 0.8
_FORMING = "forming"
"""A group that waits for members of its incarnation."""


def status(state: State, stages: Sequence[Stage], watch: Watch, now: float) -> Json:
    stage, last = stages[at_work(stages, state)], stages[-1]
    shares = time_shares(list(watch.replicas.values()))
    found: Json = {
        **_result(state, last, watch, now),
        "training": sections.training(state, stages, watch, now).as_json(),
        "hasTarget": last.settings.stop.target_metric is not None,
        "liveReplicas": state.num_live_replicas,
        "warmStart": stage is not last or stage.is_warming_up(state),
        "checkpoint": state.last_checkpoint,
        "timeShares": shares,
        "limit": limit(shares, busiest(list(watch.shards.values()))),
        "members": [
            _member(groups[index], member, watch, now)
            for groups in (state.shards, state.replicas)
            for index in sorted(groups)
            for member in groups[index].members
        ],
        "removed": state.removed,
    }
    return finite(found)


def summary(state: State, stages: Sequence[Stage], watch: Watch, now: float) -> Json:
    return finite(_result(state, stages[-1], watch, now))


def metrics_line(state: State, stages: Sequence[Stage], watch: Watch, now: float) -> Json:
    histogram = sections.all_shards(state, watch).staleness
    return finite(
        {
            "seconds": state.seconds(now),
            "samples": state.samples,
            "steps": state.data.steps_done,
            "epoch": progress.epochs_processed(state),
            "samplesPerSecond": watch.samples_per_second(),
            "loss": stages[at_work(stages, state)].loss(state, watch),
            "learningRate": sections.learning_rate(watch),
            "stalenessP50": reports.staleness_quantile(histogram, 0.5),
            "stalenessP99": reports.staleness_quantile(histogram, 0.99),
            "liveReplicas": state.num_live_replicas,
        }
        | ({"reported": watch.reported} if watch.reported else {})
    )


def counts_every_loss(state: State, watch: Watch) -> bool:
    """Whether no shard had senders whose losses it could not count, as far as it could tell.

    Of one that lives this may change: its disk may have room again before it loses anything.
    """
    reports_ = (*watch.shards.values(), *state.totals.shard_reports.values())
    return not any(report.uncounted for report in reports_)


def evaluation_line(state: State) -> Json:
    latest = state.evaluations[-1]
    return finite(
        {
            "seconds": latest.seconds,
            "samples": latest.samples,
            "epoch": latest.epoch,
            "evaluation": {"loss": latest.loss, "final": latest.final, **latest.measures},
        }
    )


def finite(content: Json) -> Json:
    """The same with null for the numbers that JSON cannot hold."""
    return {key: _finite(item) for key, item in content.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _result(state: State, last: Stage, watch: Watch, now: float) -> Json:
    restarts = state.totals.restarts
    return {
        "phase": state.phase,
        "reason": state.reason,
        "message": state.message,
        "seconds": state.seconds(now),
        "samples": state.samples,
        "steps": state.data.steps_done,
        "epochs": state.data.epochs_done,
        **_measures(state),
        "evaluations": state.totals.evaluations,
        **last.status(state),
        "staleness": _staleness(state, watch),
        "restarts": {role: restarts.get(role, 0) for role in ("coordinator", "shard", "replica")},
        **_portions(state.data),
        "pushesShortened": sections.shortened_pushes(state, watch),
        **_faults_and_checkpoints(state),
        "resumedFrom": state.resumed_from or None,
    }


def _measures(state: State) -> Json:
    final = next((item for item in state.evaluations if item.final), None)
    best = state.best_model
    return {
        "finalMeasures": final.measures if final else None,
        "finalLoss": final.loss if final else None,
        "latestMeasures": sections.latest_measures(state) or None,
        "bestModel": {**asdict(best), "name": stop.said(best.name)} if best else None,
        "bestMeasures": {name: asdict(item) for name, item in state.best.items()},
    }


def _portions(data: DataLedger) -> Json:
    return {
        "portionsDone": data.portions_done,
        "portionsRequeued": data.portions_requeued,
        "samplesRequeued": data.samples_requeued,
        "samplesRepeated": data.samples_repeated,
        "samplesPartiallyApplied": data.samples_partially_applied,
    }


def _faults_and_checkpoints(state: State) -> Json:
    counted = state.totals
    return {
        "partialChunks": counted.partial_chunks,
        "updatesLost": sum(counted.updates_lost.values()),
        "updatesLostBySender": counted.updates_lost,
        "nonFiniteGradients": state.non_finite(),
        "nonFiniteGradientsByReplica": state.non_finite_by_name(),
        "checkpoints": counted.checkpoints,
        "checkpointFailures": counted.checkpoint_failures,
        "checkpointsDamaged": len(counted.damaged_checkpoints),
        "checkpointBlockingSeconds": counted.blocking_seconds,
    }


def _staleness(state: State, watch: Watch) -> Json:
    """The pushes of all incarnations so far: quantiles, and the histogram by lower bounds."""
    whole = sections.all_shards(state, watch)
    return {
        "p50": reports.staleness_quantile(whole.staleness, 0.5),
        "p99": reports.staleness_quantile(whole.staleness, 0.99),
        "unknown": whole.staleness_unknown,
        "histogram": {
            str(bound): count
            for bound, count in zip(reports.STALENESS_BOUNDS, whole.staleness, strict=False)
            if count
        },
    }


def _member(group: Group, member: MemberId, watch: Watch, now: float) -> Json:
    heard, process = watch.heard.get(member), group.processes[member.partition]
    return {
        "name": group.process_name(member.partition),
        "incarnation": group.incarnation,
        "state": _FORMING if group.live and not group.is_whole else group.state,
        "reason": group.reason,
        "place": process.place,
        "pid": process.pid,
        "address": process.address,
        "metricsAddress": process.metrics_address,
        "silentSeconds": None if heard is None else now - heard,
        **_details(member, watch),
    }


def _details(member: MemberId, watch: Watch) -> Json:
    if (replica := watch.replicas.get(member)) is not None:
        done = {"samples": replica.progress.samples, "steps": replica.steps}
        return {**done, **_quantiles(replica)}
    if (shard := watch.shards.get(member)) is not None:
        found = {"version": shard.version, "activity": shard.state, **_quantiles(shard)}
        predicted = {
            replica: {"meanStaleness": each.mean_staleness, "error": each.error}
            for replica, each in shard.predicted.items()
        }
        return {**found, "predicted": predicted} if predicted else found
    return {}


def _quantiles(report: ReplicaReport | ShardReport) -> Json:
    """Of the staleness of a member's own pushes, or of those that it has applied."""
    return {
        "stalenessP50": reports.staleness_quantile(report.staleness, 0.5),
        "stalenessP99": reports.staleness_quantile(report.staleness, 0.99),
    }


def time_shares(replicas: Sequence[ReplicaReport]) -> TimeShares | None:
    """Over all replicas; None before the first step."""
    seconds = {
        "computing": sum(report.compute_seconds for report in replicas),
        "data": sum(report.data_seconds for report in replicas),
        "push": sum(report.push_seconds for report in replicas),
        "fetch": sum(report.fetch_seconds for report in replicas),
    }
    whole = sum(seconds.values())
    return {name: part / whole for name, part in seconds.items()} if whole > 0 else None


def busiest(shards: Sequence[ShardReport]) -> float:
    return max((s.busy_seconds / s.uptime_seconds for s in shards if s.uptime_seconds), default=0.0)


def limit(shares: TimeShares | None, busiest_shard: float) -> str:
    if shares is None:
        return "Nothing has been computed yet."
    largest = max(("data", "push", "fetch"), key=lambda name: shares[name])
    if shares[largest] < _LIMITS_FROM:
        return f"Computing: the replicas compute {shares['computing']:.0%} of their time."
    if largest != "data" and busiest_shard >= _BUSY_SHARD:
        return (
            f"The shards: the busiest one works {busiest_shard:.0%} of its time while the "
            f"replicas wait; try more shards."
        )
    return f"{largest.capitalize()}: the replicas wait {shares[largest]:.0%} of their time for it."
