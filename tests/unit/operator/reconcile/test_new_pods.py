"""A job's pods come from what was stored with it, maybe when the administrator allowed more."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from builders.operator_jobs import COMMON, NOW, UID, job, made_children
from disttrain_operator.kinds import WORKLOADS, Kind
from disttrain_operator.manifests import children, stored
from disttrain_operator.manifests.config import ManifestConfig, PodSecurity
from disttrain_operator.manifests.stored import Objects
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import JobRecord
from disttrain_operator.reconcile import plan
from disttrain_operator.reconcile.actions import Create, Knowledge, Plan, Renew, Rescale

BEFORE = ManifestConfig(
    pod_security=PodSecurity.PRIVILEGED, pod_defaults='{"spec":{"hostNetwork":true}}'
)
BY_NOW = ManifestConfig()
STOPPED: dict[str, Any] = {"wanted": 0, "ready": 0, "remaining": 0}
REPLICAS = (Kind.ReplicaSet, "digits-replica")


def observed(record: JobRecord, config: ManifestConfig = BEFORE, **changed: Any) -> Observed:
    """A job as an operator with these settings made it; `changed`: fields of its workloads."""
    found = {
        key: replace(seen, **changed) if seen.kind in WORKLOADS else seen
        for key, seen in made_children(record, config).items()
    }
    return Observed(record, found, {}, common=COMMON)


def planned(seen: Observed, config: ManifestConfig = BY_NOW) -> Plan:
    return plan.make(seen, Knowledge(UID), config, NOW + timedelta(seconds=1))


def told(found: Plan) -> dict[str, str]:
    assert found.status is not None
    return {each["type"]: each["message"] for each in found.status["conditions"]}


def test_what_runs_is_left_alone_whatever_is_allowed_by_now() -> None:
    found = planned(observed(job()))

    assert found.actions == ()
    assert "InvalidTemplate" not in told(found)


def test_a_lost_child_is_not_made_again_beyond_what_is_allowed_by_now() -> None:
    seen = observed(job())
    del seen.children[REPLICAS]

    found = planned(seen)

    assert found.actions == ()
    message = told(found)["InvalidTemplate"]
    assert "no longer allowed" in message
    assert "the replica's pods at the level restricted: spec.hostNetwork" in message
    (action,) = planned(seen, BEFORE).actions
    assert isinstance(action, Create)


def test_a_suspended_job_is_not_resumed_beyond_what_is_allowed_by_now() -> None:
    seen = observed(job(), **STOPPED)

    found = planned(seen)

    assert found.actions == ()
    assert "no longer allowed" in told(found)["InvalidTemplate"]
    assert {type(action) for action in planned(seen, BEFORE).actions} == {Rescale}


def test_nor_is_one_whose_own_template_asks_for_more_than_that() -> None:
    shared = {"count": 3, "template": {"spec": {"hostNetwork": True}}}
    found = planned(observed(job(replicas=shared), **STOPPED))

    assert found.actions == ()
    assert "spec.hostNetwork" in told(found)["InvalidTemplate"]


def test_it_shrinks_but_does_not_grow() -> None:
    seen = observed(job())
    seen.job = job(replicas={"count": 5})
    assert planned(seen).actions == ()

    seen.job = job(replicas={"count": 1})
    (action,) = planned(seen).actions
    assert isinstance(action, Rescale)
    assert (action.child, action.wanted) == (REPLICAS, 1)


def test_suspending_works_whatever_is_allowed_by_now() -> None:
    seen = observed(job())
    seen.job = job(suspend=True)

    assert [type(action) for action in planned(seen).actions] == [Rescale]


def test_an_account_that_is_no_longer_allowed_gets_no_new_pods() -> None:
    own = {"template": {"spec": {"serviceAccountName": "irsa"}}}
    allowed = ManifestConfig(allowed_service_accounts=("irsa",))
    seen = observed(job(coordinator=own), allowed)
    seen.children = {key: each for key, each in seen.children.items() if key[0] is not Kind.Job}

    created = [each for each in planned(seen, allowed).actions if isinstance(each, Create)]
    assert [each.child.kind for each in created if each.child.kind in WORKLOADS] == [Kind.Job]
    assert planned(seen).actions == ()


def test_a_coordinator_that_would_have_to_wait_is_not_made_anew_beyond_it() -> None:
    seen = observed(job())
    (place,) = (key for key in seen.children if key[0] is Kind.Job)
    seen.children[place] = replace(seen.children[place], failed=3, remaining=0, ready=0)

    assert [type(each) for each in planned(seen, BEFORE).actions] == [Renew]
    assert planned(seen).actions == ()


def test_what_somebody_spoiled_makes_no_pods_and_stops_no_operator() -> None:
    seen = observed(job(), **STOPPED)
    objects = stored.unpack(seen.children[REPLICAS].objects)
    assert objects is not None
    made = [json.loads(json.dumps(each.body)) for each in objects.children]
    (replicas,) = (each for each in made if each["kind"] == "ReplicaSet")
    replicas["spec"]["template"]["spec"]["volumes"] = 5
    text = stored.pack(Objects(tuple(map(children.of, made)), objects.launch))
    seen.children = {key: replace(each, objects=text) for key, each in seen.children.items()}

    found = planned(seen, BEFORE)

    assert found.actions == ()
    assert "spec.volumes must be a list, got 5" in told(found)["InvalidTemplate"]


@pytest.mark.parametrize("text", ["", "no text of ours"])
def test_what_keeps_no_objects_is_scaled_as_before(text: str) -> None:
    seen = observed(job(), objects=text, **STOPPED)

    assert {type(action) for action in planned(seen).actions} == {Rescale}
