"""Replicas of several processes: added, removed, counted and told of as wholes."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from builders.operator_jobs import COMMON, NOW, UID, child, job, made_children, pod
from disttrain.job.names import Role
from disttrain_operator.kinds import WORKLOADS, Kind
from disttrain_operator.manifests import stored
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import JobRecord
from disttrain_operator.policies.missing_pods import Lack
from disttrain_operator.reconcile import events, plan
from disttrain_operator.reconcile.actions import (
    Action,
    CheckTemplates,
    Create,
    Knowledge,
    Plan,
    ReadEvents,
    Remove,
    Renew,
    Rescale,
)

CONFIG = ManifestConfig()
PARTITIONS = 2
STOPPED: dict[str, Any] = {"wanted": 0, "ready": 0, "remaining": 0}
SETS = [f"digits-replica-{index}" for index in range(3)]
POLICY = (Kind.NetworkPolicy, "digits-replica-01234567")


def divided(count: int = 3, record: dict[str, Any] | None = None, **spec: Any) -> JobRecord:
    template = spec.pop("template", {})
    replicas = {"count": count, "partitions": PARTITIONS, **template}
    return job(record, replicas=replicas, **spec)


def observed(record: JobRecord, made_for: JobRecord | None = None) -> Observed:
    """A job that runs, as it was made, maybe for other wishes."""
    children = made_children(made_for or record, CONFIG)
    children[POLICY] = child(Kind.NetworkPolicy, name=POLICY[1])
    pods = {
        name: replace(pod(Role.REPLICA), name=name, uid=f"uid-{name}", is_of_several=True)
        for key in children
        if key[1] in SETS
        for name in (f"{key[1]}-{partition}" for partition in range(PARTITIONS))
    }
    pods["digits-coordinator-0"] = pod(Role.COORDINATOR)
    return Observed(record, children, pods, common=COMMON)


def change(seen: Observed, name: str, **changed: Any) -> None:
    key = Kind.StatefulSet, name
    seen.children[key] = replace(seen.children[key], **changed)


def made(seen: Observed, knowledge: Knowledge | None = None, *, seconds: float = 1) -> Plan:
    return plan.make(seen, knowledge or Knowledge(UID), CONFIG, NOW + timedelta(seconds=seconds))


def created(actions: tuple[Action, ...]) -> dict[str, dict[str, Any]]:
    return {each.child.name: each.child.body for each in actions if isinstance(each, Create)}


def told(found: Plan) -> dict[str, Any]:
    assert found.status is not None
    return found.status


def test_the_shards_that_are_wanted_are_told_though_the_manifest_leaves_them_open() -> None:
    assert told(made(observed(divided(parameterServer={}))))["shards"] == PARTITIONS


def test_a_new_job_gets_a_set_for_each_replica_and_a_policy_of_its_own() -> None:
    made_at_once = created(made(Observed(divided())).actions)

    assert set(SETS) <= set(made_at_once)
    assert POLICY[1] in made_at_once
    assert {made_at_once[name]["spec"]["replicas"] for name in SETS} == {PARTITIONS}
    texts = {
        body["metadata"]["annotations"][stored.OBJECTS]
        for body in made_at_once.values()
        if body["kind"] in {kind.name for kind in WORKLOADS}
    }
    assert len(texts) == 1


def test_of_a_job_that_runs_nothing_is_touched() -> None:
    found = made(observed(divided()))

    assert found.actions == ()
    assert told(found)["phase"] == "Running"
    assert (told(found)["replicas"], told(found)["readyReplicas"]) == (3, 3)


def test_who_counts_the_selected_pods_counts_replicas() -> None:
    selector = told(made(observed(divided())))["selector"]

    assert "apps.kubernetes.io/pod-index=0" in selector.split(",")
    assert "pod-index" not in told(made(observed(job())))["selector"]
    of_ranks = job(replicas={"count": 3, "ranks": 2}, strategy={"localSteps": {}})
    found = told(made(observed(of_ranks)))["selector"]
    assert found.replace(of_ranks.uid, divided().uid) == selector


def test_a_replica_counts_as_ready_when_all_of_its_processes_are() -> None:
    seen = observed(divided())
    change(seen, SETS[0], ready=1)
    change(seen, SETS[1], ready=0, remaining=1)
    change(seen, SETS[2], ready=0, remaining=0)

    found = told(made(seen))

    assert (found["replicas"], found["readyReplicas"]) == (2, 0)
    conditions = {each["type"]: each for each in found["conditions"]}
    assert conditions["ReplicasAvailable"]["message"] == "0 of 3 replicas"


def test_a_larger_job_gets_whole_replicas_like_those_that_it_has() -> None:
    before = divided(count=2)
    seen = observed(divided(count=3), before)

    ((name, body),) = created(made(seen).actions).items()

    assert (name, body["spec"]["replicas"]) == (SETS[2], PARTITIONS)
    one = seen.children[Kind.StatefulSet, SETS[0]].objects
    assert body["metadata"]["annotations"][stored.OBJECTS] == one


def test_a_smaller_job_loses_whole_replicas_and_those_with_the_highest_numbers() -> None:
    seen = observed(divided(count=1), divided(count=3))

    actions = made(seen).actions

    assert all(isinstance(each, Remove) for each in actions)
    assert [each.seen.name for each in actions if isinstance(each, Remove)] == SETS[1:]


def test_of_a_job_that_cannot_be_changed_replicas_are_stopped_instead() -> None:
    seen = observed(divided(count=1, batchSize=-1), divided(count=3))

    actions = made(seen).actions

    scaled = {each.child[1]: each.wanted for each in actions if isinstance(each, Rescale)}
    assert scaled == {SETS[1]: 0, SETS[2]: 0}
    assert len(actions) == 2


def test_a_set_that_somebody_scaled_has_all_processes_again() -> None:
    seen = observed(divided())
    change(seen, SETS[1], wanted=1)

    (action,) = made(seen).actions

    assert isinstance(action, Rescale)
    assert (action.child[1], action.wanted) == (SETS[1], PARTITIONS)


def test_a_set_that_is_gone_is_made_again_when_its_pods_have_left_their_names() -> None:
    seen = observed(divided())
    del seen.children[Kind.StatefulSet, SETS[1]]
    name = f"{SETS[1]}-0"
    seen.pods[name] = replace(seen.pods[name], gone_at=NOW)
    assert made(seen).actions == ()

    del seen.pods[name]
    assert set(created(made(seen).actions)) == {SETS[1]}


def test_pods_that_nobody_keeps_any_longer_are_taken_over() -> None:
    seen = observed(divided())
    del seen.children[Kind.StatefulSet, SETS[1]]

    assert set(created(made(seen).actions)) == {SETS[1]}


def test_a_stop_ends_all_processes_of_all_replicas_after_the_coordinator() -> None:
    seen = observed(divided(suspend=True))
    first = [each.child[0] for each in made(seen).actions if isinstance(each, Rescale)]
    assert first == [Kind.Job]

    keeper = Kind.Job, "digits-coordinator"
    seen.children[keeper] = replace(seen.children[keeper], **STOPPED)
    del seen.pods["digits-coordinator-0"]
    scaled = {
        each.child[1]: each.wanted for each in made(seen).actions if isinstance(each, Rescale)
    }
    assert scaled == dict.fromkeys([*SETS, "digits-shard"], 0)


OTHER = {"template": {"template": {"spec": {"nodeSelector": {"pool": "spot"}}}}}


def test_resumed_with_other_templates_and_fewer_replicas_the_rest_is_made_anew() -> None:
    seen = observed(divided(count=2, **OTHER), divided(count=3))
    seen.pods.clear()
    for key, each in seen.children.items():
        if each.kind in WORKLOADS:
            seen.children[key] = replace(each, **STOPPED)

    first, *actions = made(seen).actions

    assert isinstance(first, CheckTemplates)
    assert len(first.children) == len(Role), "one replica is asked about for all"
    renewed = {each.child.name: each.child.body for each in actions if isinstance(each, Renew)}
    assert set(renewed) == {*SETS[:2], "digits-shard", "digits-coordinator"}
    for name in SETS[:2]:
        template = renewed[name]["spec"]["template"]["spec"]
        assert template["nodeSelector"] == {"pool": "spot"}
    assert [each.seen.name for each in actions if isinstance(each, Remove)] == SETS[2:]


def test_a_policy_of_a_job_before_it_keeps_no_job_waiting() -> None:
    seen = observed(divided())
    old = (Kind.NetworkPolicy, "digits-replica-of-before")
    seen.children[old] = child(Kind.NetworkPolicy, name=old[1], owner_uid="of-before")

    found = made(seen)

    assert found.actions == ()
    assert told(found)["phase"] == "Running"
    kinds = {each["type"] for each in told(found)["conditions"]}
    assert "WaitingForPrevious" not in kinds


@pytest.mark.parametrize("num_replicas", [4, 100])
def test_of_replicas_that_all_lack_pods_a_few_are_asked_why(num_replicas: int) -> None:
    record = divided(count=num_replicas)
    seen = observed(record)
    known = {}
    for key, each in list(seen.children.items()):
        if each.is_of_one_replica:
            seen.children[key] = replace(each, ready=0, remaining=0)
            known[each.uid] = Lack(NOW)

    found = made(seen, Knowledge(UID, lacks=known), seconds=60)

    (asked,) = [each for each in found.actions if isinstance(each, ReadEvents)]
    assert len(asked.uids) == 3


def test_one_event_tells_of_all_replicas_that_came_and_went() -> None:
    text = events.replicas_changed(range(3, 20), [])
    assert text.message == (
        "replicas made: 3, 4, 5, 6, 7, 8, 9, 10 and 9 more; the job's spec says so"
    )
    assert "taken away: 2;" in events.replicas_changed([], [2]).message
