from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from builders.operator_jobs import COMMON, KEY, NOW, UID, child, job, made_children, pod
from disttrain.job.names import Role
from disttrain_operator import times
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests import stored
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.observed import parsing
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import EndPhase, JobRecord, Outcome, PodRecord
from disttrain_operator.policies.problem import Problem, ProblemType
from disttrain_operator.reconcile import desired, plan
from disttrain_operator.reconcile.actions import (
    Annotate,
    CheckTemplates,
    Create,
    CreateKeys,
    DeleteJob,
    Knowledge,
    Plan,
    RemovePod,
    Renew,
    Rescale,
)

CONFIG = ManifestConfig()
COMPLETE = Outcome(phase=EndPhase.COMPLETE, reason="EpochsDone", message="1 epoch", time=NOW)
PODS = (
    pod(Role.COORDINATOR),
    pod(Role.SHARD, 0),
    pod(Role.SHARD, 1),
    *(pod(Role.REPLICA, index) for index in range(3)),
)


def observed(
    record: JobRecord, pods: tuple[PodRecord, ...] = PODS, **changed: dict[str, Any]
) -> Observed:
    """A job that runs; `changed` replaces fields of children, by the name of their kind."""
    children = {
        key: replace(seen, **changed.get(seen.kind.name, {}))
        for key, seen in made_children(record, CONFIG).items()
    }
    return Observed(record, children, {each.name: each for each in pods}, common=COMMON)


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
    assert len(created) == len(found.actions) - 1 == 9
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


def test_an_operator_of_other_jobs_looks_after_those_alone() -> None:
    config = ManifestConfig(manager="example.com/other")

    assert made(Observed(job()), config=config) == Plan()
    assert made(Observed(job(managedBy="disttrain.dev/operator")), config=config) == Plan()
    assert made(Observed(job(managedBy="example.com/other")), config=config).actions


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
        (job(transport="sharedMemory"), Knowledge(UID), "NotSupported"),
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
            Knowledge(UID, in_the_way=(child(Kind.Service, owner_uid="", owned_by=""),)),
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


def test_a_status_has_one_condition_of_a_type() -> None:
    """With two of a type the API server would not take it."""
    config = ManifestConfig(pod_defaults='{"spec":{"hostNetwork":true}}')

    status = made(Observed(job()), config=config).status

    assert status is not None
    types = [each["type"] for each in status["conditions"]]
    assert types.count("InvalidTemplate") == 1


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


@pytest.mark.parametrize(
    "config",
    [
        ManifestConfig(image="other:2"),
        ManifestConfig(image_pull_policy="Always"),
        ManifestConfig(image_pull_secrets=("other",)),
        ManifestConfig(default_volume=None, allowed_service_accounts=("*",)),
    ],
)
def test_other_defaults_of_the_operator_touch_nothing_that_runs(config: ManifestConfig) -> None:
    seen = observed(job(checkpoint={"volume": {"claimName": "shared"}}))

    assert made(seen, config=config).actions == ()


def test_a_coordinator_with_an_account_of_its_own_keeps_its_right_to_write_the_status() -> None:
    config = ManifestConfig(allowed_service_accounts=("irsa",))
    own = {"template": {"spec": {"serviceAccountName": "irsa"}}}
    seen = Observed(job(coordinator=own), {}, {}, common=COMMON)

    made_at_once = [each for each in made(seen, config=config).actions if isinstance(each, Create)]

    (binding,) = (each.child for each in made_at_once if each.child.kind is Kind.RoleBinding)
    assert [each["name"] for each in binding.body["subjects"]] == ["irsa"]
    assert binding.body["roleRef"]["kind"] == "ClusterRole"


def test_what_is_made_again_is_what_it_was_whatever_the_operator_would_make_today() -> None:
    seen = observed(job())
    del seen.children[Kind.ReplicaSet, "digits-replica"]

    (action,) = made(seen, config=ManifestConfig(image="other:2")).actions

    assert isinstance(action, Create)
    (container,) = action.child.body["spec"]["template"]["spec"]["containers"]
    assert container["image"] == CONFIG.image
    assert action.child.body["spec"]["replicas"] == 3
    marks = action.child.body["metadata"]["annotations"]
    assert marks[stored.OBJECTS] == seen.children[Kind.StatefulSet, "digits-shard"].objects


@pytest.mark.parametrize("text", ["", "AAAA", "no text of ours"])
def test_of_a_job_without_its_objects_text_what_runs_goes_on_and_nothing_is_made(text: str) -> None:
    lost = {"objects": text}
    seen = observed(job(), StatefulSet=lost, ReplicaSet=lost, Job=lost)
    del seen.children[Kind.ReplicaSet, "digits-replica"]

    found = made(seen)

    assert found.actions == ()
    assert stored.OBJECTS in conditions(found)["NotSupported"]["message"]


def with_a_deployment(**spec: Any) -> Observed:
    """A job as an operator made it that kept the replicas by a Deployment."""
    lost = {"objects": "", "templates": ""}
    kept_by = {"owner_uid": "uid-of-deployment", "owned_by": "Deployment digits-replica"}
    seen = observed(job(), StatefulSet=lost, ReplicaSet=lost | kept_by, Job=lost)
    seen.job = job(**spec)
    return seen


def test_a_job_with_a_deployment_is_told_to_be_of_another_operator_and_nothing_else() -> None:
    found = made(with_a_deployment())

    assert found.actions == ()
    assert "an older operator made the job" in conditions(found)["NotSupported"]["message"]
    assert "NameConflict" not in conditions(found)


def test_the_deployment_of_an_older_operator_is_scaled_with_its_job() -> None:
    (action,) = made(with_a_deployment(replicas={"count": 5})).actions

    assert isinstance(action, Rescale)
    assert action.child == (Kind.Deployment, "digits-replica")
    assert (action.uid, action.spec) == ("uid-of-deployment", {"replicas": 5})


def test_the_deployment_of_an_older_operator_stops_with_its_job() -> None:
    seen = with_a_deployment()
    seen.job = job({"outcome": COMPLETE})

    scaled = {each.child[0]: each.spec for each in made(seen).actions if isinstance(each, Rescale)}

    assert scaled[Kind.Deployment] == scaled[Kind.StatefulSet] == {"replicas": 0}


OTHER = {"count": 3, "template": {"spec": {"nodeSelector": {"pool": "spot"}}}}
STOPPED = {"wanted": 0, "ready": 0, "remaining": 0}


def with_other_templates(**changed: dict[str, Any]) -> Observed:
    """A job that was suspended, whose templates were changed, and that is resumed."""
    seen = observed(job(), (), **changed)
    seen.job = job(replicas=OTHER)
    return seen


def test_resumed_with_other_templates_a_job_is_made_anew_from_them() -> None:
    seen = with_other_templates(StatefulSet=STOPPED, ReplicaSet=STOPPED, Job=STOPPED)

    first, *actions = made(seen).actions

    assert isinstance(first, CheckTemplates)
    renewed = {each.child.kind: each.child.body for each in actions if isinstance(each, Renew)}
    assert len(actions) == len(renewed)
    assert set(renewed) == {Kind.StatefulSet, Kind.ReplicaSet, Kind.Job}
    template = renewed[Kind.ReplicaSet]["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"pool": "spot"}
    texts = {each["metadata"]["annotations"][stored.OBJECTS] for each in renewed.values()}
    assert len(texts) == 1


def test_before_that_what_still_ends_is_waited_for() -> None:
    ends = {**STOPPED, "remaining": 1}

    assert (
        made(with_other_templates(StatefulSet=STOPPED, ReplicaSet=ends, Job=STOPPED)).actions == ()
    )


def test_resumed_while_it_stops_a_job_with_other_templates_stops_first() -> None:
    actions = made(with_other_templates(Job=STOPPED)).actions

    assert {each.child[0]: each.spec for each in actions if isinstance(each, Rescale)} == {
        Kind.StatefulSet: {"replicas": 0},
        Kind.ReplicaSet: {"replicas": 0},
    }
    assert len(actions) == 2


def test_what_is_made_again_beside_other_templates_says_of_which_it_was_made() -> None:
    seen = with_other_templates()
    of_before = seen.children[Kind.StatefulSet, "digits-shard"]
    del seen.children[Kind.ReplicaSet, "digits-replica"]

    found = made(seen).actions

    (body,) = (each.child.body for each in found if isinstance(each, Create))
    assert body["metadata"]["annotations"][stored.OBJECTS] == of_before.objects
    assert body["metadata"]["annotations"][stored.TEMPLATES] == of_before.templates


def test_other_templates_touch_nothing_that_runs() -> None:
    assert made(with_other_templates()).actions == ()


def test_scaling_is_one_small_change() -> None:
    seen = observed(job(), ReplicaSet={"wanted": 1})

    (scaled,) = made(seen).actions
    assert isinstance(scaled, Rescale)
    assert scaled.child == (Kind.ReplicaSet, "digits-replica")
    assert (scaled.uid, scaled.spec) == ("uid-ReplicaSet", {"replicas": 3})


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
        Kind.ReplicaSet,
    }
    assert conditions(second)["Suspended"]["status"] == "True"


def test_what_a_user_should_know_of_the_manifest_is_passed_on() -> None:
    stop = {"targetMetric": {"name": "accuracy", "atLeast": 0.9}}
    (warning,) = made(Observed(job(stop=stop, evaluation={"everyEpochs": 1}))).warnings

    assert warning.startswith("spec.stop.targetMetric: is the only condition")
    assert made(Observed(job())).warnings == ()


IN_BACKOFF = {"remaining": 0, "ready": 0, "failed": 3, "version": 7}
"""A Job that waits before it makes its next pod."""


@pytest.mark.parametrize("resumed", [False, True])
def test_a_coordinator_that_would_have_to_wait_gets_another_job(*, resumed: bool) -> None:
    seen = observed(job(), PODS[1:], Job={**IN_BACKOFF, "wanted": 0 if resumed else 1})

    (action,) = made(seen).actions

    assert isinstance(action, Renew)
    assert (action.child.kind, action.seen.uid, action.seen.version) == (Kind.Job, "uid-Job", 7)
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
    seen = observed(job(), pods, Job={**IN_BACKOFF, **changed})

    assert not [action for action in made(seen).actions if isinstance(action, Renew)]


def test_a_job_that_is_suspended_or_has_ended_keeps_its_coordinators_job() -> None:
    suspended = observed(job(suspend=True), PODS[1:], Job={**IN_BACKOFF, "wanted": 0})
    ended = observed(job({"outcome": COMPLETE}), (), Job=IN_BACKOFF)

    for seen in (suspended, ended):
        assert not [action for action in made(seen).actions if isinstance(action, Renew)]


def test_a_job_created_suspended_gets_nothing() -> None:
    assert made(Observed(job(suspend=True))).actions == ()


def test_at_the_end_shards_and_replicas_stop() -> None:
    ended = replace(PODS[0], phase="Succeeded", outcome=COMPLETE)
    found = made(observed(job(), (ended, *PODS[1:])))

    assert {action.child[0] for action in found.actions if isinstance(action, Rescale)} == {
        Kind.StatefulSet,
        Kind.ReplicaSet,
    }
    assert found.outcome == COMPLETE
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


BLOCKED: tuple[tuple[str, JobRecord, Knowledge], ...] = (
    (
        "InvalidTemplate",
        job(pendingDeadlineSeconds=10),
        Knowledge(UID, refused=Problem(ProblemType.INVALID_TEMPLATE, "no such image")),
    ),
    (
        "NameConflict",
        job(pendingDeadlineSeconds=10),
        Knowledge(UID, in_the_way=(child(Kind.Service, owner_uid="other", owned_by="Job x"),)),
    ),
    ("InvalidManifest", job(pendingDeadlineSeconds=10, batchSize=0), Knowledge(UID)),
    (
        "NotSupported",
        job(pendingDeadlineSeconds=10, transport="sharedMemory"),
        Knowledge(UID),
    ),
)


@pytest.mark.parametrize(("problem", "record", "knowledge"), BLOCKED)
def test_the_first_deadline_counts_from_the_creation_whatever_is_in_the_way(
    problem: str, record: JobRecord, knowledge: Knowledge
) -> None:
    waiting = made(Observed(record), knowledge, seconds=9)
    assert conditions(waiting)[problem]["status"] == "True"
    assert waiting.outcome is None
    assert waiting.wake_at is not None
    assert waiting.wake_at <= NOW + timedelta(seconds=10)

    ended = made(Observed(record), knowledge, seconds=10)

    assert ended.outcome is not None
    assert ended.outcome.reason == "PendingDeadlineExceeded"
    assert conditions(waiting)[problem]["message"] in ended.outcome.message


def test_the_first_deadline_counts_from_the_last_resume() -> None:
    record = job({"status": made(Observed(job(suspend=True))).status}, pendingDeadlineSeconds=10)
    resumed = made(Observed(record), seconds=100)
    assert resumed.outcome is None
    assert conditions(resumed)["Suspended"]["reason"] == "Resumed"

    known = replace(job({"status": resumed.status}), spec=record.spec)

    assert made(Observed(known), seconds=109).outcome is None
    late = made(Observed(known), seconds=110).outcome
    assert late is not None
    assert late.reason == "PendingDeadlineExceeded"


REFUSED: dict[str, Any] = {"batchSize": 0, "replicas": {"count": 5}, "ttlSecondsAfterFinished": 60}


def test_a_job_that_runs_is_looked_after_although_the_rules_grew() -> None:
    """A manifest that was accepted once and is refused by a newer operator."""
    record = job(**REFUSED)
    seen = replace(observed(job()), job=record)

    found = made(seen)

    assert conditions(found)["InvalidManifest"]["status"] == "True"
    assert found.status is not None
    assert (found.status["phase"], found.status["strategy"]) == ("Running", "downpour")
    (scaled,) = found.actions
    assert isinstance(scaled, Rescale)
    assert scaled.spec == {"replicas": 5}


def test_of_a_job_that_is_refused_by_now_nothing_is_made_again() -> None:
    seen = replace(observed(job()), job=job(batchSize=0))
    seen.children.pop((Kind.Service, "digits"))

    assert made(seen).actions == ()


def test_a_job_that_is_refused_by_now_is_suspended_ended_and_deleted() -> None:
    stopped = made(replace(observed(job()), job=job(suspend=True, **REFUSED)))
    (suspended,) = stopped.actions
    assert isinstance(suspended, Rescale)
    assert (suspended.child[0], suspended.spec) == (Kind.Job, {"suspend": True})

    ended = (replace(PODS[0], phase="Succeeded", outcome=COMPLETE), *PODS[1:])
    finished = made(replace(observed(job(), ended), job=job(**REFUSED)))
    assert finished.outcome == COMPLETE
    assert conditions(finished)["Complete"]["reason"] == "EpochsDone"

    over = made(Observed(job({"outcome": COMPLETE}, **REFUSED)), seconds=60)
    assert over.actions == (DeleteJob(),)


@pytest.mark.parametrize("several", [{"partitions": 3}, {"grid": "1x3"}, {"ranks": 3}])
def test_of_a_job_that_is_refused_by_now_all_processes_of_a_replica_count(
    several: dict[str, Any],
) -> None:
    refused = job(batchSize=0, replicas={"count": 2, **several})
    assert desired.of(refused, CONFIG).spec.replicas.processes == 3


def test_on_a_lost_node_also_a_pod_of_a_refused_job_is_removed() -> None:
    lost = replace(PODS[3], gone_at=NOW)
    seen = replace(observed(job(), (*PODS[:3], lost, *PODS[4:])), job=job(batchSize=0))

    assert [type(action) for action in made(seen, seconds=30).actions] == [RemovePod]


@pytest.mark.parametrize(
    "spec",
    [
        {"batchSize": 0, "managedBy": "example.com/other"},
        {"managedBy": "example.com/other", "parameterServer": 7},
    ],
)
def test_a_refused_job_of_another_manager_is_left_alone(spec: dict[str, Any]) -> None:
    assert made(Observed(job(**spec))) == Plan()


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
    lost = replace(PODS[3], gone_at=NOW, node="node-1")
    seen = observed(job(), (*PODS[:3], lost, *PODS[4:]))

    assert made(seen, seconds=29).actions == ()
    assert made(seen, seconds=29).wake_at == NOW + timedelta(seconds=30)
    (removed,) = made(seen, seconds=30).actions
    assert removed == RemovePod(lost, "it should have ended 30 s ago")


def test_a_node_that_answers_is_asked_again_a_minute_later() -> None:
    late = replace(PODS[3], gone_at=NOW, node="node-1")
    seen = observed(job(), (*PODS[:3], late, *PODS[4:]))
    answered = Knowledge(UID, answered={"node-1": NOW + timedelta(seconds=31)})

    waiting = made(seen, answered, seconds=32)

    assert waiting.actions == ()
    assert waiting.wake_at == NOW + timedelta(seconds=91)
    assert [type(each) for each in made(seen, answered, seconds=91).actions] == [RemovePod]


def test_an_administrator_may_keep_pods_on_lost_nodes() -> None:
    late = replace(PODS[3], gone_at=NOW)
    seen = observed(job(), (*PODS[:3], late, *PODS[4:]))

    found = made(seen, seconds=300, config=ManifestConfig(removes_lost_pods=False))

    assert found.actions == ()
    assert found.wake_at is None


def test_a_pod_that_is_over_needs_no_force() -> None:
    gone = replace(PODS[3], gone_at=NOW, phase="Failed")

    found = made(observed(job(), (*PODS[:3], gone, *PODS[4:])), seconds=300)

    assert not any(isinstance(action, RemovePod) for action in found.actions)
    assert found.wake_at is None


def test_the_time_of_a_suspended_job_does_not_run() -> None:
    record = job(suspend=True, activeDeadlineSeconds=10, pendingDeadlineSeconds=5)

    found = made(observed(record), seconds=1000)

    assert found.outcome is None
    assert found.wake_at is None


def test_a_volume_of_somebody_else_is_taken_and_never_in_the_way() -> None:
    claim = {"owner_uid": "of another", "owned_by": ""}
    found = made(observed(job(), PersistentVolumeClaim=claim))

    assert not {"NameConflict", "WaitingForPrevious"} & set(conditions(found))


def test_a_claim_that_goes_with_the_job_before_is_waited_for() -> None:
    claim = {"owner_uid": "of another", "owned_by": "DistTrainJob digits"}
    found = made(observed(job(), PersistentVolumeClaim=claim))
    assert "WaitingForPrevious" in conditions(found)
    assert not found.actions


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
