"""What a token proves, and what a pod's certificate says."""

from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest

from builders.operator_jobs import KEY, UID, child, job, pod
from disttrain.job.identity import Identity
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.observed import parsing
from disttrain_operator.observed.inventory import Observed
from disttrain_operator.observed.records import ChildRecord, PodRecord
from disttrain_operator.policies.identities import (
    Application,
    Denied,
    PodName,
    application,
    identity_of,
    pod_of,
)

AUDIENCE = "disttrain.dev"
EXTRA = {
    "authentication.kubernetes.io/pod-name": ["digits-shard-1"],
    "authentication.kubernetes.io/pod-uid": ["pod-uid"],
}
USER = {"username": "system:serviceaccount:here:default", "extra": EXTRA}
GOOD = {"authenticated": True, "audiences": [AUDIENCE], "user": USER}
ASKED = Application(job="digits", instance="pod-uid.1f", request="PEM")
SHARDS = child(Kind.StatefulSet, name="digits-shard", uid="shards")
REPLICAS = child(Kind.ReplicaSet, name="digits-replica", uid="replicas")
GROUP = child(Kind.StatefulSet, name="digits-replica-3", uid="group")
COORDINATOR = child(Kind.Job, name="digits-coordinator", uid="coordinator")


def a_pod(name: str, controller: str, role: Role = Role.REPLICA) -> PodRecord:
    return replace(pod(role), name=name, uid="pod-uid", controller=controller)


def seen(one: PodRecord, *children: ChildRecord) -> Observed:
    workloads = children or (SHARDS, REPLICAS, GROUP, COORDINATOR)
    return Observed(
        job=job(),
        children={(each.kind, each.name): each for each in workloads},
        pods={one.name: one},
    )


def test_a_good_token_names_its_pod() -> None:
    assert pod_of({"status": GOOD}, AUDIENCE) == PodName("here", "digits-shard-1", "pod-uid")


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False, "error": "the pod is gone"},
        {**GOOD, "authenticated": "true"},
        {**GOOD, "audiences": ["https://kubernetes.default.svc"]},
        {**GOOD, "audiences": None},
        {**GOOD, "user": {"username": "system:node:a", "extra": EXTRA}},
        {**GOOD, "user": {"username": "system:serviceaccount:here:default"}},
        {**GOOD, "user": {**USER, "extra": {**EXTRA, next(iter(EXTRA)): ["one", "two"]}}},
        {**GOOD, "user": {"username": "system:serviceaccount:", "extra": EXTRA}},
        {**GOOD, "user": "nobody"},
    ],
)
def test_what_the_api_server_does_not_vouch_for_is_nobody(status: dict[str, Any]) -> None:
    found = pod_of({"status": status}, AUDIENCE)
    assert isinstance(found, Denied)
    assert found.status is HTTPStatus.UNAUTHORIZED


@pytest.mark.parametrize(
    ("one", "whole"),
    [
        (a_pod("digits-shard-1", "shards"), Identity(UID, "shard", 1)),
        (a_pod("digits-coordinator-0-x7k2p", "coordinator"), Identity(UID, "coordinator", 0)),
        (
            a_pod("digits-replica-x7k2p", "replicas"),
            Identity(UID, "replica", place="digits-replica-x7k2p"),
        ),
        (a_pod("digits-replica-3-1", "group"), Identity(UID, "replica", 3, 1)),
        # A label that somebody has changed says nothing.
        (a_pod("digits-shard-1", "shards", Role.COORDINATOR), Identity(UID, "shard", 1)),
    ],
)
def test_a_pod_is_what_its_workload_makes_it(one: PodRecord, whole: Identity) -> None:
    name = PodName("here", one.name, "pod-uid")
    assert identity_of(name, ASKED, seen(one)) == whole._replace(instance="pod-uid.1f")


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        # Another incarnation of the name, or one that the operator has not heard of.
        (replace(a_pod("digits-shard-1", "shards"), uid="older"), "UnknownPod"),
        (a_pod("digits-shard-2", "shards"), "UnknownPod"),
        (a_pod("digits-shard-1", "of-another"), "UnknownPod"),
        # Somebody's own pod with our labels.
        (a_pod("digits-shard-1", ""), "NoPodOfAJob"),
    ],
)
def test_a_pod_that_no_workload_of_the_job_controls_gets_nothing(
    one: PodRecord, reason: str
) -> None:
    found = identity_of(PodName("here", "digits-shard-1", "pod-uid"), ASKED, seen(one))
    assert isinstance(found, Denied)
    assert found.reason == reason
    assert (found.status is HTTPStatus.SERVICE_UNAVAILABLE) == (reason == "UnknownPod")


def test_a_workload_of_another_job_of_the_name_is_none_of_the_jobs() -> None:
    one, older = a_pod("digits-shard-1", "shards"), replace(SHARDS, owner_uid="older")
    found = identity_of(PodName("here", one.name, one.uid), ASKED, seen(one, older))
    assert isinstance(found, Denied)


@pytest.mark.parametrize("name", ["digits-shard", "digits-shard-x", "digits-shard-\u0663"])
def test_a_name_without_a_number_is_no_shards(name: str) -> None:
    one = a_pod(name, "shards")
    found = identity_of(PodName("here", name, one.uid), ASKED, seen(one))
    assert isinstance(found, Denied)
    assert found.reason == "NoPodOfAJob"


@pytest.mark.parametrize("instance", ["other.1f", "pod-uid", "pod-uidx.1", "pod-uid.", "pod-uid./"])
def test_nobody_gets_an_instance_of_another_pod(instance: str) -> None:
    one, asked = a_pod("digits-shard-1", "shards"), ASKED._replace(instance=instance)
    found = identity_of(PodName("here", one.name, one.uid), asked, seen(one))
    assert isinstance(found, Denied)
    assert found.reason == "ForeignInstance"


def test_nothing_is_known_of_a_job_that_was_not_seen() -> None:
    found = identity_of(PodName("here", "digits-shard-1", "pod-uid"), ASKED, Observed())
    assert isinstance(found, Denied)
    assert found.reason == "UnknownPod"


@pytest.mark.parametrize(
    "content",
    [None, [], "x", {}, {"job": "a", "instance": "b"}, {**ASKED._asdict(), "request": 1}],
)
def test_what_asks_for_nothing_is_no_application(content: object) -> None:
    assert application(content) is None
    assert application({**ASKED._asdict(), "more": 1}) == ASKED


def test_the_controller_of_a_pod_is_read_from_its_owner() -> None:
    labels = {"app.kubernetes.io/component": "shard", "app.kubernetes.io/instance": KEY.name}
    owners = [{"uid": "friend"}, {"uid": "shards", "controller": True}]
    metadata = {"name": "digits-shard-1", "labels": labels, "ownerReferences": owners}
    found = parsing.pod({"metadata": metadata})
    assert found is not None
    assert found.controller == "shards"
    without = parsing.pod({"metadata": {**metadata, "ownerReferences": [{"uid": "friend"}, 7]}})
    assert without is not None
    assert without.controller == ""
