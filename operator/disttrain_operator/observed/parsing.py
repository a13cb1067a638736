"""Objects of the API to records. What is not as expected becomes an empty value: never an error."""

import sys
from datetime import UTC, datetime
from typing import Any, Final

from disttrain.job import cluster_labels, cluster_names, document
from disttrain.job.failure_policy import DISRUPTION
from disttrain.job.names import Role
from disttrain_operator import json_text, times
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests import stored
from disttrain_operator.observed import outcomes
from disttrain_operator.observed.records import (
    ChildRecord,
    Death,
    EndPhase,
    JobKey,
    JobRecord,
    Outcome,
    PodRecord,
)
from disttrain_operator.untrusted import conditions, is_true, items, mapping, number, text

_BY_TAINT = "DeletionByTaintManager"
_LOST: Final = frozenset({"node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service"})
"""Taints of a node whose kubelet does not answer, or of which somebody says that it is off."""

RESTARTS = "disttrain.dev/restarts"
"""Annotation of a job: restarts that were counted, per role and pod."""

STARTED = "disttrain.dev/started"
"""Annotation of a coordinator's Job that was made anew: when the first one started."""

LONG_AGO = datetime.fromtimestamp(0, UTC)
"""Stands for a time that is not told: the same each time, so that none is a change."""


def _kept(value: object) -> str:
    """The text, shared with all equal ones: a job's name and uid stand in twenty records."""
    return sys.intern(str(value))


def job(body: dict[str, Any], own_fields: frozenset[str]) -> JobRecord:
    """A DistTrainJob; of its status only the named fields are kept."""
    metadata, status = mapping(body, "metadata"), mapping(body, "status")
    annotations = mapping(metadata, "annotations")
    created = times.parse(metadata.get("creationTimestamp")) or LONG_AGO
    return JobRecord(
        key=JobKey(_kept(metadata.get("namespace")), _kept(metadata.get("name"))),
        uid=_kept(metadata.get("uid")),
        version=number(metadata.get("resourceVersion")),
        generation=number(metadata.get("generation")),
        created=created,
        deleting="deletionTimestamp" in metadata,
        spec=_kept(_spec(body.get("spec"))),
        outcome=outcomes.from_conditions(conditions(status), created),
        restarts=_at_most(json_text.LARGEST_SPEC_BYTES, annotations.get(RESTARTS)),
        authority=_authority(annotations),
        written=_written({name: status[name] for name in sorted(own_fields & status.keys())}),
        phase=_kept(status.get("phase", "")),
        strategy=_kept(status.get("strategy", "")),
        training=number(mapping(status, "training").get("samples")) > 0,
    )


def _spec(value: object) -> str:
    """The spec as JSON; of one that is no mapping, or too large, what is wrong with it."""
    if not isinstance(value, dict):
        return _text_of(value if isinstance(value, str) else "must be a mapping")
    try:
        found = json_text.write(value)
    except TypeError:
        # Deeper than the writer goes.
        return _text_of(document.TOO_DEEP)
    if len(found) > json_text.LARGEST_SPEC_BYTES:
        limit = json_text.LARGEST_SPEC_BYTES
        return _text_of(f"must be at most {limit} bytes as JSON, got {len(found)}")
    return found.decode()


def _written(status: dict[str, Any]) -> str:
    """The operator's own fields as JSON; deeper than it writes them they count as none."""
    try:
        return _text_of(status)
    except TypeError:
        return _text_of({})


def _at_most(longest: int, value: object) -> str:
    """The text; one that is longer than the operator writes it counts as none."""
    return value if isinstance(value, str) and len(value) <= longest else ""


def _text_of(value: object) -> str:
    return json_text.write(value).decode()


def job_key(body: dict[str, Any]) -> JobKey:
    """The job that an object was made for, by its label."""
    metadata = mapping(body, "metadata")
    labels = mapping(metadata, "labels")
    return JobKey(_kept(metadata.get("namespace")), _kept(labels.get(cluster_labels.INSTANCE, "")))


def child(kind: Kind, body: dict[str, Any]) -> ChildRecord:
    """An object that was made for a job, or stands where one should be."""
    metadata = mapping(body, "metadata")
    labels = mapping(metadata, "labels")
    annotations = mapping(metadata, "annotations")
    owner = next(iter(items(metadata.get("ownerReferences"))), {})
    label_uid = str(labels.get(cluster_labels.JOB_UID, ""))
    created = times.parse(metadata.get("creationTimestamp")) or LONG_AGO
    return ChildRecord(
        kind=kind,
        name=_kept(metadata.get("name")),
        uid=str(metadata.get("uid")),
        version=number(metadata.get("resourceVersion")),
        job=job_key(body),
        owner_uid=_kept(owner.get("uid", label_uid)),
        owned_by=_kept(f"{owner.get('kind')} {owner.get('name')}") if owner else "",
        deleting="deletionTimestamp" in metadata,
        objects=_kept(_at_most(stored.LONGEST_TEXT, annotations.get(stored.OBJECTS))),
        templates=_kept(annotations.get(stored.TEMPLATES, "")),
        authority=_authority(annotations),
        outcome=outcomes.from_annotation(annotations.get(cluster_labels.OUTCOME), created),
        **_state(kind, body),
    )


def _authority(annotations: dict[str, Any]) -> str:
    return _kept(_at_most(stored.AUTHORITY_LENGTH, annotations.get(stored.AUTHORITY)))


def _controller(metadata: dict[str, Any]) -> str:
    owners = items(metadata.get("ownerReferences"))
    found = next((each for each in owners if each.get("controller") is True), {})
    return _kept(found.get("uid", ""))


def _role(body: dict[str, Any]) -> Role | None:
    labels = mapping(body, "metadata", "labels")
    found = labels.get(cluster_labels.COMPONENT)
    return Role(found) if found in set(Role) else None


def _main_container(statuses: object) -> dict[str, Any]:
    found = (each for each in items(statuses) if each.get("name") == cluster_names.CONTAINER)
    return next(found, {})


def _state(kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
    spec, status = mapping(body, "spec"), mapping(body, "status")
    if kind in {Kind.StatefulSet, Kind.ReplicaSet}:
        return {
            "wanted": number(spec.get("replicas")),
            "ready": number(status.get("readyReplicas")),
            "remaining": number(status.get("replicas")),
            "trouble": _trouble(conditions(status).get("ReplicaFailure")),
        }
    if kind is Kind.Job:
        annotations = mapping(body, "metadata", "annotations")
        return _job_state(spec, status, times.parse(annotations.get(STARTED)))
    if kind is Kind.PersistentVolumeClaim:
        bound = status.get("phase") in {"Bound", None}
        return {"trouble": "" if bound else f"its phase is {status.get('phase')}"}
    return {}


def _job_state(
    spec: dict[str, Any], status: dict[str, Any], began: datetime | None
) -> dict[str, Any]:
    found = conditions(status)
    # Only a Job that was suspended, and so started anew, speaks of that.
    started = times.parse(status.get("startTime")) if "Suspended" in found else None
    ended = next((phase for phase in EndPhase if is_true(found.get(phase))), None)
    return {
        "wanted": 0 if spec.get("suspend") or spec.get("parallelism") == 0 else 1,
        "ready": number(status.get("ready")),
        "remaining": number(status.get("active")) + number(status.get("terminating")),
        "started": started or began or times.parse(status.get("startTime")),
        "failed": number(status.get("failed")),
        "ended": ended,
        "trouble": _trouble(found.get("Failed")),
    }


def _trouble(condition: dict[str, Any] | None) -> str:
    return text(condition.get("message")) if condition and is_true(condition) else ""


def trouble_of_node(node: dict[str, Any]) -> str:
    """Why no kubelet will end a pod there, in words; empty for a node that answers.

    One that is not ready but says so itself answers: a volume may take its time to be unmounted.
    """
    ready = conditions(mapping(node, "status")).get("Ready", {})
    if ready.get("status") == "Unknown":
        return "its node does not answer"
    taints = items(mapping(node, "spec").get("taints"))
    found = sorted(_LOST.intersection(str(taint.get("key")) for taint in taints))
    return f"its node has the taint {found[0]}" if found else ""


def pod(body: dict[str, Any]) -> PodRecord | None:
    """A pod of a job; None for a pod without a role."""
    role = _role(body)
    if role is None:
        return None
    metadata, status = mapping(body, "metadata"), mapping(body, "status")
    labels = mapping(metadata, "labels")
    container = _main_container(status.get("containerStatuses"))
    states = conditions(status)
    created = times.parse(metadata.get("creationTimestamp"))
    return PodRecord(
        name=str(metadata.get("name")),
        uid=str(metadata.get("uid")),
        version=number(metadata.get("resourceVersion")),
        job=job_key(body),
        owner_uid=_kept(labels.get(cluster_labels.JOB_UID, "")),
        role=role,
        phase=_kept(status.get("phase", "")),
        ready=is_true(states.get("Ready")),
        gone_at=times.parse(metadata.get("deletionTimestamp")),
        restarts=number(container.get("restartCount")),
        node=_kept(mapping(body, "spec").get("nodeName", "")),
        created=created,
        tainted=states.get(DISRUPTION, {}).get("reason") == _BY_TAINT,
        disrupted=is_true(states.get(DISRUPTION)),
        outcome=_outcome(container, created) if role is Role.COORDINATOR else None,
        is_of_several=cluster_labels.REPLICA_INDEX in labels,
        controller=_controller(metadata),
        **_deaths(container, status, _reasons(status, states)),
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


def _deaths(
    container: dict[str, Any], status: dict[str, Any], reasons: frozenset[str]
) -> dict[str, Any]:
    """How the container ended now, and before its last restart: the API tells of no more."""
    ended = mapping(container, "state", "terminated")
    now = _ended(ended, reasons)
    before = _ended(mapping(container, "lastState", "terminated"), reasons)
    if not ended:
        return {"death": before or _eviction(container, status, reasons)}
    # Of the one before nobody may have seen anything while the container ran again.
    earlier = () if before is None else (before,)
    return {"death": now, "earlier": earlier, "restarting": now is not None}


def _eviction(
    container: dict[str, Any], status: dict[str, Any], reasons: frozenset[str]
) -> Death | None:
    """Of a pod that failed before a container of it ended: only the pod itself says so."""
    if status.get("phase") != "Failed" or _terminated(container):
        return None
    return Death(
        exit_code=-1,
        reason=str(status.get("reason", "")),
        message=text(status.get("message")),
        # The same each time, so that it is told once.
        time=times.parse(status.get("startTime")) or LONG_AGO,
        reasons=reasons,
    )


def _ended(ended: dict[str, Any], reasons: frozenset[str]) -> Death | None:
    """An end of a container, if it is a death."""
    code = ended.get("exitCode")
    if not isinstance(code, int) or code == 0:
        return None
    return Death(
        exit_code=code,
        reason=str(ended.get("reason", "")),
        message=text(ended.get("message")),
        time=times.parse(ended.get("finishedAt")) or LONG_AGO,
        reasons=reasons | {str(ended.get("reason", ""))},
    )


def _outcome(container: dict[str, Any], created: datetime | None) -> Outcome | None:
    ended = _terminated(container)
    if ended.get("exitCode") != 0:
        return None
    finished = times.parse(ended.get("finishedAt")) or created or LONG_AGO
    return outcomes.from_termination(ended.get("message"), finished)
