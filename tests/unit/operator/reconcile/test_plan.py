from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from builders.operator_jobs import KEY, NOW, UID, child, job, pod
from disttrain.job.names import Role
from disttrain_operator import times
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.observed import parsing
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import ChildRecord, EndPhase, JobRecord, Outcome, PodRecord
from disttrain_operator.policies.problem import Problem, ProblemType
from disttrain_operator.reconcile import desired, plan
from disttrain_operator.reconcile.actions import (
    Annotate,
    Apply,
    CheckTemplates,
    Create,
    CreateKeys,
    DeleteJob,
    Plan,
    RemovePod,
    Renew,
    Rescale,
)
from disttrain_operator.reconcile.knowledge import Knowledge

CONFIG = ManifestConfig()
COMPLETE = Outcome(phase=EndPhase.COMPLETE, reason="EpochsDone", message="1 epoch", time=NOW)
PODS = (
    pod(Role.COORDINATOR),
    pod(Role.SHARD, 0),
    pod(Role.SHARD, 1),
    *(pod(Role.REPLICA, index) for index in range(3)),
)


def running(record: JobRecord) -> dict[tuple[Kind, str], ChildRecord]:
    """All children of a job that runs, as they were made."""
    numbers: dict[Kind, dict[str, Any]] = {
        Kind.StatefulSet: {"wanted": 2, "ready": 2, "remaining": 2},
        Kind.Deployment: {"wanted": 3, "ready": 3, "remaining": 3},
        Kind.Job: {"wanted": 1, "ready": 1, "remaining": 1, "started": NOW},
    }
    made = {}
    for wanted in desired.expected(record, CONFIG):
        seen = child(
            wanted.kind,
            name=wanted.name,
            fingerprint=wanted.fingerprint,
            **numbers.get(wanted.kind, {}),
        )
        made[wanted.key] = seen
    return made


def observed(
    record: JobRecord, pods: tuple[PodRecord, ...] = PODS, **changed: dict[str, Any]
) -> Observed:
    """A job that runs; `changed` replaces fields of children, by the name of their kind."""
    children = {
        key: replace(seen, **changed.get(seen.kind.name, {}))
        for key, seen in running(record).items()
    }
    return Observed(record, children, {each.name: each for each in pods})


def made(
    seen: Observed, knowledge: Knowledge | None = None, *, seconds: float = 1, config: Any = CONFIG
) -> Plan:
    return plan.make(seen, knowledge or Knowledge(UID), config, NOW + timedelta(seconds=seconds))


def conditions(found: Plan) -> dict[str, dict[str, Any]]:
    assert found.status is not None
    return {each["type"]: each for each in found.status["conditions"]}


def test_a_new_job_gets_everything_at_once() -> None:
    found = made(Observed(job()))

    assert isinstance(found.actions[0], CreateKeys)
    created = [action.child.kind for action in found.actions[1:] if isinstance(action, Create)]
    assert len(created) == len(found.actions) - 1 == 11
    assert found.status is not None
    assert found.status["phase"] == "Pending"


def test_of_a_job_that_runs_nothing_is_touched() -> None:
    found = made(observed(job()))

    assert found.actions == ()
    assert found.status is not None
    assert found.status["phase"] == "Running"
    assert conditions(found)["ReplicasAvailable"]["status"] == "True"


def test_a_status_does_not_change_by_itself() -> None:
    first = made(observed(job()))
    assert first.status is not None

    second = made(observed(job({"status": first.status})), seconds=1000)

    assert second.status == first.status


@pytest.mark.parametrize(
    "record", [job({"deleting": True}), job(managedBy="example.com/other"), None]
)
def test_what_is_not_ours_is_left_alone(record: JobRecord | None) -> None:
    assert made(Observed(record)) == Plan()


def test_templates_are_checked_before_anything_is_made() -> None:
    template = {"spec": {"nodeSelector": {"disk": "fast"}}}
    record = job(replicas={"count": 1, "template": template})

    assert isinstance(made(Observed(record)).actions[0], CheckTemplates)
    knowledge = Knowledge(UID, checked=True)
    assert isinstance(made(Observed(record), knowledge).actions[0], CreateKeys)


@pytest.mark.parametrize(
    ("record", "knowledge", "condition"),
    [
        (job(batchSize=-1), Knowledge(UID), "InvalidManifest"),
        (job(portionSize=3), Knowledge(UID), "InvalidManifest"),
        (job(replicas={"count": 1, "partitions": 2}), Knowledge(UID), "NotSupported"),
        (
            job(replicas={"count": 1, "template": {"spec": {"hostNetwork": True}}}),
            Knowledge(UID),
            "InvalidTemplate",
        ),
        (
            job(),
            Knowledge(UID, refused=Problem(ProblemType.INVALID_TEMPLATE, "unknown field")),
            "InvalidTemplate",
        ),
        (
            job(),
            Knowledge(UID, in_the_way=(child(Kind.ConfigMap, owner_uid="", owned_by=""),)),
            "NameConflict",
        ),
        (
            job(),
            Knowledge(UID, in_the_way=(child(Kind.Service, owner_uid="earlier"),)),
            "WaitingForPrevious",
        ),
    ],
)
def test_what_cannot_run_is_told_and_nothing_is_made(
    record: JobRecord, knowledge: Knowledge, condition: str
) -> None:
    found = made(Observed(record), knowledge)

    assert found.actions == ()
    assert conditions(found)[condition]["status"] == "True"
    assert conditions(found)[condition]["message"]
    assert conditions(found)["Degraded"]["status"] == "True"


def test_a_job_without_a_place_for_checkpoints_is_told_so() -> None:
    found = made(Observed(job()), config=ManifestConfig(default_volume=None))

    assert "spec.checkpoint.volume" in conditions(found)["NoCheckpointVolume"]["message"]
    assert found.actions == ()


def test_objects_of_an_earlier_job_are_waited_for() -> None:
    seen = observed(job(), Service={"owner_uid": "earlier", "deleting": True})

    found = made(seen)

    assert found.actions == ()
    assert "Service digits" in conditions(found)["WaitingForPrevious"]["message"]
    assert found.wake_at is not None


def test_a_missing_child_is_made_again() -> None:
    seen = observed(job())
    del seen.children[Kind.Service, "digits"]

    (action,) = made(seen).actions

    assert isinstance(action, Create)
    assert action.child.kind is Kind.Service


def test_no_second_coordinator_is_made_while_the_first_still_ends() -> None:
    seen = observed(job())
    del seen.children[Kind.Job, "digits-coordinator"]
    assert made(seen).actions == ()

    seen.pods.clear()

    (action,) = made(seen).actions
    assert isinstance(action, Create)


@pytest.mark.parametrize("changed", [{"fingerprint": "other"}, {"generation": 2}])
def test_a_child_that_was_changed_is_made_right(changed: dict[str, Any]) -> None:
    (action,) = made(observed(job(), StatefulSet=changed)).actions

    assert isinstance(action, Apply)
    assert action.child.kind is Kind.StatefulSet


def test_what_the_operator_changed_itself_is_not_changed_again() -> None:
    seen = observed(job(), StatefulSet={"generation": 2})

    assert made(seen, Knowledge(UID, written={"uid-StatefulSet": 2})).actions == ()


def test_scaling_is_one_small_change() -> None:
    seen = observed(job(), Deployment={"wanted": 1})

    assert made(seen).actions == (
        Rescale((Kind.Deployment, "digits-replica"), "uid-Deployment", (("replicas", 3),)),
    )


def test_suspending_stops_the_coordinator_first() -> None:
    first = made(observed(job(suspend=True)))
    assert [action.child[0] for action in first.actions if isinstance(action, Rescale)] == [
        Kind.Job
    ]
    assert conditions(first)["Suspended"]["reason"] == "Suspending"

    coordinator_gone = {"wanted": 0, "remaining": 0, "ready": 0}
    second = made(observed(job(suspend=True), PODS[1:], Job=coordinator_gone))

    assert {action.child[0] for action in second.actions if isinstance(action, Rescale)} == {
        Kind.StatefulSet,
        Kind.Deployment,
    }
    assert conditions(second)["Suspended"]["status"] == "True"


def test_what_a_user_should_know_of_the_manifest_is_passed_on() -> None:
    stop = {"targetMetric": {"name": "accuracy", "atLeast": 0.9}}
    (warning,) = made(Observed(job(stop=stop, evaluation={"everyEpochs": 1}))).warnings

    assert warning.startswith("spec.stop.targetMetric: is the only condition")
    assert made(Observed(job())).warnings == ()


HELD_BACK = {"remaining": 0, "ready": 0, "failed": 3, "version": 7}
"""A Job that waits before it makes its next pod."""


@pytest.mark.parametrize("resumed", [False, True])
def test_a_coordinator_that_would_have_to_wait_gets_another_job(*, resumed: bool) -> None:
    seen = observed(job(), PODS[1:], Job={**HELD_BACK, "wanted": 0 if resumed else 1})

    (action,) = made(seen).actions

    assert isinstance(action, Renew)
    assert (action.child.kind, action.uid, action.version) == (Kind.Job, "uid-Job", 7)
    assert action.child.body["spec"]["suspend"] is False
    annotations = action.child.body["metadata"]["annotations"]
    # What was resumed begins anew; what was drained has the deadline that it had.
    assert annotations.get(parsing.STARTED) == (None if resumed else times.text(NOW))


@pytest.mark.parametrize(
    ("pods", "changed"),
    [
        (PODS[1:], {"failed": 0}),
        (PODS[1:], {"remaining": 1}),
        (PODS[1:], {"deleting": True}),
        # It failed by itself, as one does that its node does not take: waiting is right.
        ((replace(PODS[0], phase="Failed", gone_at=NOW), *PODS[1:]), {}),
        (PODS, {}),
    ],
    ids=["nothing failed", "one is there", "it goes", "its pod failed", "its pod is there"],
)
def test_otherwise_the_coordinators_job_stays(
    pods: tuple[PodRecord, ...], changed: dict[str, Any]
) -> None:
    seen = observed(job(), pods, Job={**HELD_BACK, **changed})

    assert not [action for action in made(seen).actions if isinstance(action, Renew)]


def test_a_job_that_is_suspended_or_has_ended_keeps_its_coordinators_job() -> None:
    suspended = observed(job(suspend=True), PODS[1:], Job={**HELD_BACK, "wanted": 0})
    ended = observed(job({"outcome": COMPLETE}), (), Job=HELD_BACK)

    for seen in (suspended, ended):
        assert not [action for action in made(seen).actions if isinstance(action, Renew)]


def test_a_job_created_suspended_gets_nothing() -> None:
    assert made(Observed(job(suspend=True))).actions == ()


def test_the_end_is_written_down_before_anything_stops() -> None:
    ended = replace(PODS[0], phase="Succeeded", outcome=COMPLETE)
    found = made(observed(job(), (ended, *PODS[1:])))

    assert isinstance(found.actions[0], Annotate)
    assert {action.child[0] for action in found.actions[1:] if isinstance(action, Rescale)} == {
        Kind.StatefulSet,
        Kind.Deployment,
    }
    assert conditions(found)["Complete"]["reason"] == "EpochsDone"


def test_after_the_end_nothing_is_made_again() -> None:
    found = made(Observed(job({"outcome": COMPLETE})))

    assert found.actions == ()
    assert found.status is not None
    assert found.status["phase"] == "Complete"


def test_a_coordinator_that_ended_without_words_leaves_a_failure() -> None:
    ended = {"ended": EndPhase.COMPLETE, "wanted": 1, "remaining": 0}

    found = made(observed(job(), PODS[1:], Job=ended))

    assert conditions(found)["Failed"]["reason"] == "OutcomeUnknown"
    assert "summary.json" in conditions(found)["Failed"]["message"]


def test_words_that_are_still_on_their_way_are_waited_for() -> None:
    found = made(observed(job(), Job={"ended": EndPhase.COMPLETE}))

    assert found.outcome is None


@pytest.mark.parametrize(
    ("fields", "seconds", "reason"),
    [
        ({"activeDeadlineSeconds": 10}, 9, None),
        ({"activeDeadlineSeconds": 10}, 10, "DeadlineExceeded"),
        ({"pendingDeadlineSeconds": 10}, 10, "PendingDeadlineExceeded"),
        ({"pendingDeadlineSeconds": 10, "activeDeadlineSeconds": 5}, 7, "DeadlineExceeded"),
    ],
)
def test_deadlines(fields: dict[str, Any], seconds: float, reason: str | None) -> None:
    found = made(observed(job(**fields)), seconds=seconds)

    assert (found.outcome.reason if found.outcome else None) == reason
    if reason is None:
        assert found.wake_at == NOW + timedelta(seconds=10)


def test_training_that_has_begun_has_met_its_first_deadline() -> None:
    record = job({"training": True}, pendingDeadlineSeconds=10)

    assert made(observed(record), seconds=100).outcome is None


def test_after_a_deadline_the_coordinator_stops_first() -> None:
    found = made(observed(job(activeDeadlineSeconds=1)), seconds=5)

    stopped = [action.child[0] for action in found.actions if isinstance(action, Rescale)]
    assert stopped == [Kind.Job]


@pytest.mark.parametrize(("seconds", "deleted"), [(29, False), (30, True)])
def test_an_ended_job_is_deleted_after_its_time(seconds: float, *, deleted: bool) -> None:
    record = job({"outcome": COMPLETE}, ttlSecondsAfterFinished=30)
    found = made(Observed(record), seconds=seconds)

    assert (DeleteJob() in found.actions) is deleted
    if not deleted:
        assert found.wake_at == NOW + timedelta(seconds=30)


def test_pods_that_get_no_node_are_told_although_nothing_happens_any_more() -> None:
    stuck = replace(PODS[3], phase="Pending", ready=False, unschedulable=True, created=NOW)
    seen = observed(job(), (*PODS[:3], stuck, *PODS[4:]))

    assert "CannotStart" not in conditions(made(seen, seconds=4))
    assert made(seen, seconds=4).wake_at == NOW + timedelta(seconds=5)
    assert conditions(made(seen, seconds=5))["CannotStart"]["reason"] == "Unschedulable"


def test_pods_on_a_lost_node_are_removed_by_force() -> None:
    lost = replace(PODS[3], gone_at=NOW)
    seen = observed(job(), (*PODS[:3], lost, *PODS[4:]))

    assert made(seen, seconds=29).actions == ()
    assert made(seen, seconds=29).wake_at == NOW + timedelta(seconds=30)
    assert made(seen, seconds=30).actions == (RemovePod(lost.name, lost.uid, lost.role),)


def test_restarts_are_counted_once_and_end_a_job_that_has_too_many() -> None:
    restarted = replace(PODS[1], restarts=2)
    seen = observed(job(), (PODS[0], restarted, *PODS[2:]))
    (action,) = made(seen).actions
    assert isinstance(action, Annotate)

    seen.job = job({"restarts": action.value})
    assert made(seen).actions == ()
    policy = {"maxRestarts": {"shard": 1}}
    seen.job = job({"restarts": action.value}, failurePolicy=policy)

    found = made(seen)
    assert found.outcome is not None
    assert found.outcome.reason == "TooManyRestarts"
    assert "maxRestarts.shard (1)" in found.outcome.message


def test_a_pod_that_cannot_start_is_named_with_the_reason() -> None:
    stuck = replace(PODS[2], ready=False, waiting="ImagePullBackOff", detail="no such image")
    found = made(observed(job(), (*PODS[:2], stuck, *PODS[3:])))

    told = conditions(found)["CannotStart"]
    assert told["reason"] == "ImagePullBackOff"
    assert stuck.name in told["message"]
    assert "no such image" in told["message"]


def test_a_status_that_somebody_spoiled_is_written_anew() -> None:
    record = job({"status": {"phase": 7, "conditions": "nonsense"}})

    found = made(observed(record))

    assert found.status is not None
    assert found.status["phase"] == "Running"
    assert KEY.name in found.status["selector"]
