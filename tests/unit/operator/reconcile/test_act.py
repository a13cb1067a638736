import asyncio
from contextlib import suppress
from typing import Any, cast

import pytest

from builders.fake_cluster import FakeClient, World
from builders.operator_jobs import KEY, NOW, child, context, job, pod, trust
from disttrain.errors import DistTrainError
from disttrain.job import cluster_labels
from disttrain.job.names import Role
from disttrain_operator.cluster.client import Client
from disttrain_operator.errors import Conflict, Forbidden, NotFound
from disttrain_operator.kinds import WORKLOADS, Kind
from disttrain_operator.manifests import launch_secret, stored
from disttrain_operator.manifests.children import Child
from disttrain_operator.observed import parsing
from disttrain_operator.observed.inventory import Inventory
from disttrain_operator.reconcile.act import Actor
from disttrain_operator.reconcile.actions import (
    Action,
    Annotate,
    Create,
    CreateKeys,
    Knowledge,
    RemovePod,
    Renew,
    Rescale,
)


class Recorder:
    """Takes every request, and remembers it."""

    def __init__(self, node: dict[str, Any] | DistTrainError) -> None:
        self.node = node
        self.requests: list[tuple[str, str, Any]] = []

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        assert (kind, namespace, name) == (Kind.Node, "", "node")
        if isinstance(self.node, DistTrainError):
            raise self.node
        return self.node

    async def create(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(("create", kind.name, body["reason"]))
        return body

    async def delete(
        self, kind: Kind, namespace: str, name: str, uid: str, *, at_once: bool = False
    ) -> None:
        assert (kind, namespace, uid, at_once) == (Kind.Pod, "here", "uid", True)
        self.requests.append(("delete", name, None))

    async def merge(
        self, kind: Kind, namespace: str, name: str, patch: dict[str, Any]
    ) -> dict[str, Any]:
        assert (kind, namespace, patch["metadata"]) == (Kind.Pod, "here", {"uid": "uid"})
        self.requests.append(("merge", name, patch["status"]["phase"]))
        return {}


class Changed:
    """Holds an object that is no longer as it was seen."""

    async def delete(self, kind: Kind, *_: str, version: int) -> None:
        assert (kind, version) == (Kind.Job, 7)
        message = "it has changed"
        raise Conflict(message)


class ToldFirst:
    """Its watch tells of an object, with its state, before the answer to who makes it."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory

    async def create(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        metadata = {**body["metadata"], "uid": "made", "resourceVersion": "7"}
        told = {**body, "metadata": metadata, "status": {"phase": "Pending"}}
        self.inventory.put(parsing.child(kind, told))
        return {"metadata": metadata}


class Strict:
    """Makes what names others only once those are there, which takes them a moment."""

    def __init__(self) -> None:
        self.made: list[Kind] = []

    async def create(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        named = {
            Kind.StatefulSet: {Kind.ServiceAccount, Kind.Service},
            Kind.Job: {Kind.StatefulSet},
            Kind.ReplicaSet: {Kind.StatefulSet},
        }
        if not named.get(kind, set()) <= set(self.made):
            message = "what it names is not there"
            raise NotFound(message)
        await asyncio.sleep(0)
        self.made.append(kind)
        return {"metadata": {**body["metadata"], "uid": "made", "resourceVersion": "7"}}


def test_what_objects_name_is_there_before_them() -> None:
    strict = Strict()
    client = cast("Client", strict)
    actor = Actor(client, Inventory(), trust, None, Knowledge(job().uid), lambda: NOW)
    labels = {cluster_labels.INSTANCE: KEY.name}
    body = {"metadata": {"name": "trainer", "namespace": KEY.namespace, "labels": labels}}
    kinds = (*reversed(WORKLOADS), Kind.Service, Kind.ServiceAccount)

    asyncio.run(actor.perform(job(), [Create(Child(kind, "trainer", body)) for kind in kinds]))

    assert set(strict.made) == set(kinds)


class Keeper:
    """Keeps the Secret that is made."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.annotations: dict[str, str] = {}

    async def create(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        assert kind is Kind.Secret
        self.files = body["stringData"]
        return body

    async def merge(self, kind: Kind, _: str, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        assert (kind, name) == (Kind.DistTrainJob, KEY.name)
        self.annotations |= patch["metadata"]["annotations"]
        return patch


@pytest.mark.parametrize("transport", ["auto", {"encryption": "none"}])
def test_keys_are_made_as_the_processes_were_told_whatever_the_manifest_says_by_now(
    transport: object,
) -> None:
    keeper = Keeper()
    launch = launch_secret.launch_file(context(transport=transport))
    actor = Actor(
        cast("Client", keeper),
        Inventory(),
        trust,
        context(transport="auto" if transport != "auto" else {"encryption": "none"}),
        Knowledge(job().uid),
        lambda: NOW,
    )

    asyncio.run(actor.perform(job(), [CreateKeys(launch, (), "a fingerprint")]))

    assert set(keeper.files) == {"job.json", *(["trust.json"] if transport == "auto" else [])}
    assert keeper.files["job.json"] == launch
    assert keeper.annotations == {stored.AUTHORITY: "a fingerprint"}


def test_what_a_watch_told_of_an_object_outlasts_the_answer_to_its_creation() -> None:
    inventory = Inventory()
    client = cast("Client", ToldFirst(inventory))
    actor = Actor(client, inventory, trust, None, Knowledge(job().uid), lambda: NOW)
    labels = {cluster_labels.INSTANCE: KEY.name}
    body = {"metadata": {"name": "claim", "namespace": KEY.namespace, "labels": labels}}

    claim = Child(Kind.PersistentVolumeClaim, "claim", body)
    asyncio.run(actor.perform(job(), [Create(claim)]))

    kept = inventory.at(KEY).children[Kind.PersistentVolumeClaim, "claim"]
    assert kept.trouble == "its phase is Pending"


def test_a_coordinators_job_that_has_changed_is_left_alone() -> None:
    inventory = Inventory()
    seen = child(Kind.Job, version=7)
    inventory.put(seen)
    client = cast("Client", Changed())
    actor = Actor(client, inventory, trust, None, Knowledge(job().uid), lambda: NOW)
    again = Child(Kind.Job, seen.name, {})

    asyncio.run(actor.perform(job(), [Renew(again, seen, "why")]))

    assert inventory.at(KEY).children == {(Kind.Job, seen.name): seen}


SILENT = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
READY = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
UNWELL = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
TAINTED = {**READY, "spec": {"taints": [{"key": "node.kubernetes.io/out-of-service"}]}}
DELETE, TELL = ("delete", "pod", None), ("create", "Event", "PodRemoved")


def requests_for(
    role: Role, node: dict[str, Any] | DistTrainError, known: Knowledge, *, tainted: bool = False
) -> list[tuple[str, str, Any]]:
    """What is asked for to remove a pod that did not end in its time."""
    recorder = Recorder(node)
    client = cast("Client", recorder)
    actor = Actor(client, Inventory(), trust, None, known, lambda: NOW)
    lost = pod(role, name="pod", uid="uid", node="node", tainted=tainted)
    late = RemovePod(lost, "it is late")
    asyncio.run(actor.perform(job(), [late]))
    return recorder.requests


@pytest.mark.parametrize(
    ("role", "requests"),
    [
        (Role.SHARD, [DELETE, TELL]),
        (Role.REPLICA, [DELETE, TELL]),
        # The finalizer of its Job would hold it for as long as nobody says that it has ended.
        (Role.COORDINATOR, [DELETE, ("merge", "pod/status", "Failed"), TELL]),
    ],
)
def test_a_pod_on_a_lost_node_is_removed_whatever_holds_it(
    role: Role, requests: list[tuple[str, str, Any]]
) -> None:
    assert requests_for(role, SILENT, Knowledge(job().uid)) == requests


@pytest.mark.parametrize("node", [TAINTED, NotFound("no such node")], ids=["off", "gone"])
def test_a_node_that_is_off_or_gone_is_lost(node: dict[str, Any] | DistTrainError) -> None:
    assert requests_for(Role.SHARD, node, Knowledge(job().uid)) == [DELETE, TELL]


@pytest.mark.parametrize("node", [READY, UNWELL], ids=["ready", "not ready"])
def test_a_pod_that_is_slow_on_a_node_that_answers_is_left_to_it(node: dict[str, Any]) -> None:
    known = Knowledge(job().uid)

    # A taint that an administrator put there took it away: that says nothing of the kubelet.
    assert requests_for(Role.SHARD, node, known, tainted=True) == []

    assert known.answered == {"node": NOW}


@pytest.mark.parametrize(("tainted", "requests"), [(True, [DELETE, TELL]), (False, [])])
def test_who_may_not_ask_for_nodes_believes_the_pod(
    *, tainted: bool, requests: list[tuple[str, str, Any]]
) -> None:
    forbidden = Forbidden("nodes is forbidden")

    found = requests_for(Role.SHARD, forbidden, Knowledge(job().uid), tainted=tainted)

    assert found == requests


WORKLOAD = (Kind.StatefulSet, "digits-shard")
BODY = {"metadata": {"name": WORKLOAD[1], "namespace": KEY.namespace}, "spec": {"replicas": 7}}


@pytest.mark.parametrize(
    "action",
    [
        Annotate("disttrain.dev/restarts", "{}"),
        Rescale(WORKLOAD, "uid of the one before", 7),
    ],
    ids=["annotate", "rescale"],
)
def test_what_was_decided_of_one_object_is_not_done_to_another_of_its_name(action: Action) -> None:
    world = World()
    metadata = {"name": KEY.name, "namespace": KEY.namespace}
    world.create(Kind.DistTrainJob, {"metadata": metadata, "spec": {}})
    world.create(Kind.StatefulSet, {**BODY, "spec": {"replicas": 2}})
    before = dict(world.objects)
    actor = Actor(FakeClient(world), Inventory(), trust, None, Knowledge(job().uid), lambda: NOW)

    with suppress(Conflict):
        asyncio.run(actor.perform(job(), [action]))

    assert world.objects == before


def test_a_job_that_somebody_else_wrote_at_the_same_time_stays_known() -> None:
    """A conflict is no proof that it is gone: nothing would bring it back for minutes."""

    class Contended(FakeClient):
        async def merge(self, *_: Any) -> Any:
            message = "the object has been modified"
            raise Conflict(message)

    world, inventory = World(), Inventory()
    metadata = {"name": KEY.name, "namespace": KEY.namespace}
    made = world.create(Kind.DistTrainJob, {"metadata": metadata, "spec": {}})
    record = parsing.job(made, frozenset())
    inventory.put(record)
    knowledge = Knowledge(record.uid)
    actor = Actor(Contended(world), inventory, trust, None, knowledge, lambda: NOW)

    with pytest.raises(Conflict):
        asyncio.run(actor.perform(record, [Annotate("disttrain.dev/restarts", "{}")]))

    assert inventory.at(KEY).job == record
