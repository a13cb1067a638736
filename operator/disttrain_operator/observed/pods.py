"""Pods to records. Pure."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from disttrain.job import cluster_labels
from disttrain.job.failure_policy import DISRUPTION
from disttrain.job.names import Role
from disttrain_operator import times
from disttrain_operator.observed import outcomes, parsing
from disttrain_operator.observed.records import Death, Outcome, PodRecord
from disttrain_operator.untrusted import conditions, is_true, mapping, number, text

MOST_DEATHS = 10
"""Deaths that are kept of a pod: a status tells no more of them."""

_BY_TAINT = "DeletionByTaintManager"


def record(body: dict[str, Any]) -> PodRecord | None:
    """A pod of a job; None for a pod without a role."""
    role = parsing.role(body)
    if role is None:
        return None
    metadata, status = mapping(body, "metadata"), mapping(body, "status")
    labels = mapping(metadata, "labels")
    container = parsing.main_container(status.get("containerStatuses"))
    states = conditions(status)
    created = times.parse(metadata.get("creationTimestamp"))
    return PodRecord(
        name=str(metadata.get("name")),
        uid=str(metadata.get("uid")),
        version=number(metadata.get("resourceVersion")),
        job=parsing.job_key(body),
        owner_uid=parsing.kept(labels.get(cluster_labels.JOB_UID, "")),
        role=role,
        phase=parsing.kept(status.get("phase", "")),
        ready=is_true(states.get("Ready")),
        gone_at=times.parse(metadata.get("deletionTimestamp")),
        restarts=number(container.get("restartCount")),
        death=_death(container, status, _reasons(status, states)),
        node=parsing.kept(mapping(body, "spec").get("nodeName", "")),
        created=created,
        tainted=states.get(DISRUPTION, {}).get("reason") == _BY_TAINT,
        disrupted=is_true(states.get(DISRUPTION)),
        outcome=_outcome(container, created) if role is Role.COORDINATOR else None,
        restarting="terminated" in mapping(container, "state"),
        **_hindrance(container, states),
    )


def _hindrance(container: dict[str, Any], states: dict[str, dict[str, Any]]) -> dict[str, Any]:
    scheduled = states.get("PodScheduled", {})
    waiting = mapping(container, "state", "waiting")
    return {
        "waiting": str(waiting.get("reason", "")),
        "detail": text(waiting.get("message") or scheduled.get("message")),
        "unschedulable": scheduled.get("reason") == "Unschedulable",
    }


def _terminated(container: dict[str, Any]) -> dict[str, Any]:
    """How the container ended last: just now, or before its last restart."""
    now = mapping(container, "state", "terminated")
    return now or mapping(container, "lastState", "terminated")


def _reasons(status: dict[str, Any], states: dict[str, dict[str, Any]]) -> frozenset[str]:
    said = [str(status.get("reason", ""))]
    if is_true(states.get(DISRUPTION)):
        said.append(DISRUPTION)
    return frozenset(reason for reason in said if reason)


def _death(
    container: dict[str, Any], status: dict[str, Any], reasons: frozenset[str]
) -> Death | None:
    ended = _terminated(container)
    code = ended.get("exitCode")
    if isinstance(code, int) and code != 0:
        return Death(
            exit_code=code,
            reason=str(ended.get("reason", "")),
            message=text(ended.get("message")),
            time=times.parse(ended.get("finishedAt")) or parsing.LONG_AGO,
            reasons=reasons | {str(ended.get("reason", ""))},
        )
    if status.get("phase") == "Failed" and not ended:
        # Evicted before a container ended: only the pod itself says so.
        return Death(
            exit_code=-1,
            reason=str(status.get("reason", "")),
            message=text(status.get("message")),
            # The same at every sight of it, so that it is told once.
            time=times.parse(status.get("startTime")) or parsing.LONG_AGO,
            reasons=reasons,
        )
    return None


def _outcome(container: dict[str, Any], created: datetime | None) -> Outcome | None:
    ended = _terminated(container)
    if ended.get("exitCode") != 0:
        return None
    finished = times.parse(ended.get("finishedAt")) or created or parsing.LONG_AGO
    return outcomes.from_termination(ended.get("message"), finished)


def remembering(old: PodRecord | None, new: PodRecord) -> PodRecord:
    """The new sight of a pod, which tells its last death alone, with the deaths before that."""
    if old is None or old.uid != new.uid or old.death is None:
        return new
    earlier = old.earlier if old.death == new.death else (*old.earlier, old.death)
    return replace(new, earlier=earlier[-MOST_DEATHS:]) if earlier else new
