"""What people are told of a job by Events, and recording them: once each, counted if repeated."""

import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from disttrain.errors import DistTrainError
from disttrain.job.status_section import Condition, ConditionStatus, ConditionType
from disttrain_operator import times, untrusted
from disttrain_operator.cluster.client import Client
from disttrain_operator.errors import Conflict, Forbidden, NotFound
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.records import ChildRecord, JobRecord
from disttrain_operator.policies import conditions
from disttrain_operator.policies.problem import ProblemType
from disttrain_operator.reconcile.actions import RemovePod, Renew, Rescale, RestartAll

LOG = logging.getLogger(__name__)

_LONGEST_NOTE = 1000
_MOST_LISTED = 8
"""Replicas that an Event names."""
_COMPONENT = "disttrain-operator"
_GOOD = {ConditionType.COMPLETE, ConditionType.SUSPENDED}
_RECORDED = {*_GOOD, ConditionType.FAILED, *ProblemType}
"""Conditions of which an Event is made when they begin to hold."""


@dataclass(frozen=True, slots=True)
class EventText:
    """What an Event says: that something was done, or began to hold."""

    reason: str
    """A word for programs."""
    message: str
    good: bool = True
    """Whether it is the normal course of things."""
    is_recorded: bool = True
    """Whether an Event is made of it; otherwise the log alone tells it."""
    about: str = ""
    """Kind and name of an object of the job: of each a repetition is counted."""


def of(
    job: JobRecord, status: dict[str, Any], now: datetime, warnings: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The Events of a change of status, and with the first one those of the manifest's warnings.

    Their names follow from job, generation and reason, so that a repetition is found and counted.
    """
    found = _begun_or_resumed(job, status)
    if warnings and not job.status:
        found.append(EventText("ManifestWarning", "; ".join(warnings), good=False))
    return [_event(job, text, now) for text in found]


def new_keys(job: JobRecord, secret_uid: str, now: datetime) -> dict[str, Any]:
    """The Event of keys that were made again; each time is told."""
    message = (
        "the Secret with the job's keys was deleted: it was made again with other keys, and all "
        "processes start again with them from what they saved"
    )
    return _event(job, EventText("KeysReplaced", message, good=False), now, identity=secret_uid)


def of_action(job: JobRecord, done: EventText, now: datetime) -> dict[str, Any]:
    """The Event of something that was done; done again to the same object it is the same one."""
    return _event(job, done, now, identity=f"{job.uid}/{done.reason}/{done.about}")


def removed(remove: RemovePod, why: str) -> EventText:
    name = remove.pod.name
    message = (
        f"pod {name} was deleted by force: {why}, and {remove.because}; its process is fenced "
        "should it still run"
    )
    return EventText("PodRemoved", message, good=False, about=f"Pod {name}")


def restarted(restart: RestartAll) -> EventText:
    message = (
        f"all {len(restart.pods)} processes are started again from the latest checkpoint: "
        f"{restart.because}"
    )
    return EventText("JobRestarted", message, good=False)


def renewed(renew: Renew) -> EventText:
    """A workload that cannot become what it shall be."""
    kind, name = renew.child.key
    message = f"{kind.name} {name} was deleted and made anew: {renew.because}"
    return EventText("JobRenewed", message, about=f"{kind.name} {name}")


def taken_back(made: ChildRecord, taken: ChildRecord) -> EventText:
    """A workload that was made before it was seen that another's name is taken."""
    what = f"{made.kind.name} {made.name}"
    message = (
        f"{what} was made and deleted again: the name of {taken.kind.name} {taken.name} is taken, "
        "and of a job that cannot run as a whole nothing runs"
    )
    return EventText("TakenBack", message, good=False, about=what)


def made_again(kind: Kind, name: str) -> EventText:
    """A child that was deleted by somebody else."""
    message = f"{kind.name} {name} of the running job was missing, and was made again"
    return EventText("ChildRecreated", message, good=False, about=f"{kind.name} {name}")


def scaled(rescale: Rescale, seen: ChildRecord | None) -> EventText:
    kind, name = rescale.child
    before = "" if seen is None else f" from {seen.wanted}"
    message = f"{kind.name} {name} was scaled{before} to {rescale.wanted}: {rescale.because}"
    return EventText(
        "Scaled", message, is_recorded=rescale.is_recorded, about=f"{kind.name} {name}"
    )


def replicas_changed(added: Sequence[int], removed: Sequence[int]) -> EventText:
    """Replicas of several processes were made, or taken away, while the job ran."""
    told = ((added, "made"), (removed, "taken away"))
    parts = [f"{what}: {_listed(indices)}" for indices, what in told if indices]
    message = f"replicas {', '.join(parts)}; the job's spec says so"
    return EventText("Scaled", message, about="replicas")


def _listed(indices: Sequence[int]) -> str:
    first = ", ".join(map(str, sorted(indices)[:_MOST_LISTED]))
    more = len(indices) - _MOST_LISTED
    return f"{first} and {more} more" if more > 0 else first


def deleted(job: JobRecord) -> EventText:
    ended = "" if job.outcome is None else f" {job.outcome.phase.value} at {job.outcome.time}"
    message = (
        f"the job, which ended{ended}, was deleted by spec.ttlSecondsAfterFinished with all that "
        "it had but its volume"
    )
    return EventText("JobDeleted", message)


def _begun_or_resumed(job: JobRecord, status: dict[str, Any]) -> list[EventText]:
    before, after = conditions.by_type(job.status), conditions.by_type(status)
    found = [_begun(each) for kind, each in after.items() if _begins(kind, before.get(kind), each)]
    suspended = before.get(ConditionType.SUSPENDED)
    if _holds(suspended) and not _holds(after.get(ConditionType.SUSPENDED)):
        found.append(EventText("Resumed", "the job goes on from its latest checkpoint"))
    return found


def _begins(kind: str, before: Condition | None, after: Condition) -> bool:
    return kind in _RECORDED and _holds(after) and not (_holds(before) and _same(before, after))


def _same(before: Condition | None, after: Condition) -> bool:
    return before is not None and before.reason == after.reason


def _holds(condition: Condition | None) -> bool:
    return condition is not None and condition.status is ConditionStatus.TRUE


def _begun(condition: Condition) -> EventText:
    reason = condition.reason
    if condition.type in set(ConditionType):
        reason = condition.type
    return EventText(reason, condition.message or reason, good=condition.type in _GOOD)


def _event(job: JobRecord, text: EventText, now: datetime, *, identity: str = "") -> dict[str, Any]:
    identity = identity or f"{job.uid}/{job.generation}/{text.reason}"
    name = f"{job.key.name}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    return {
        **Kind.Event.header,
        "metadata": {"name": name, "namespace": job.key.namespace},
        "involvedObject": {
            **Kind.DistTrainJob.header,
            "namespace": job.key.namespace,
            "name": job.key.name,
            "uid": job.uid,
        },
        "reason": text.reason,
        "message": text.message[-_LONGEST_NOTE:],
        "type": "Normal" if text.good else "Warning",
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "reportingInstance": _COMPONENT,
        "firstTimestamp": times.text(now),
        "lastTimestamp": times.text(now),
        "count": 1,
    }


async def record(client: Client, event: dict[str, Any]) -> None:
    """Make an Event, or count it once more; not in a namespace that is going away."""
    with suppress(Forbidden, NotFound):
        try:
            await client.create(Kind.Event, event)
        except Conflict:
            await _count_again(client, event)


async def record_action(client: Client, job: JobRecord, done: EventText, now: datetime) -> None:
    """Log what was done and make its Event; that one fails does not undo what was done."""
    about = {"namespace": job.key.namespace, "job": job.key.name, "reason": done.reason}
    LOG.info("%s: %s", job.key, done.message, extra=about)
    if not done.is_recorded:
        return
    try:
        await record(client, of_action(job, done, now))
    except DistTrainError as error:
        LOG.warning("%s: no Event tells of this: %s", job.key, error, extra=about)


async def _count_again(client: Client, event: dict[str, Any]) -> None:
    metadata = event["metadata"]
    place = (Kind.Event, metadata["namespace"], metadata["name"])
    known = await client.get(*place)
    latest = {name: event[name] for name in ("message", "lastTimestamp")}
    count = max(1, untrusted.number(known.get("count"))) + 1
    await client.merge(*place, {**latest, "count": count})
