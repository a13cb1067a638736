import asyncio
from typing import Any, cast

import pytest

from builders.operator_jobs import KEY, NOW, child, job
from disttrain.job import cluster_labels
from disttrain.job.names import Role
from disttrain_operator.cluster.client import Client
from disttrain_operator.errors import Conflict, NotFound
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.children import Child
from disttrain_operator.observed import parsing
from disttrain_operator.observed.inventory import Inventory
from disttrain_operator.reconcile.act import Actor
from disttrain_operator.reconcile.actions import Create, RemovePod, Renew
from disttrain_operator.reconcile.knowledge import Knowledge


class Recorder:
    """Takes every request, and remembers it."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any]] = []

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
        self.inventory.put_child(parsing.child(kind, told))
        return {"metadata": metadata}


class Strict:
    """Makes what names others only once those are there, which takes them a moment."""

    def __init__(self) -> None:
        self.made: list[Kind] = []

    async def create(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        named = {Kind.RoleBinding: {Kind.Role}, Kind.Deployment: {Kind.ServiceAccount}}
        if not named.get(kind, set()) <= set(self.made):
            message = "what it names is not there"
            raise NotFound(message)
        await asyncio.sleep(0)
        self.made.append(kind)
        return {"metadata": {**body["metadata"], "uid": "made", "resourceVersion": "7"}}


def test_what_objects_name_is_there_before_them() -> None:
    strict = Strict()
    client = cast("Client", strict)
    actor = Actor(client, Inventory(), dict, None, Knowledge(job().uid), lambda: NOW)
    labels = {cluster_labels.INSTANCE: KEY.name}
    body = {"metadata": {"name": "trainer", "namespace": KEY.namespace, "labels": labels}}
    kinds = (Kind.RoleBinding, Kind.Deployment, Kind.Role, Kind.ServiceAccount)

    asyncio.run(actor.perform(job(), [Create(Child(kind, "trainer", "", body)) for kind in kinds]))

    assert set(strict.made) == set(kinds)


def test_what_a_watch_told_of_an_object_outlasts_the_answer_to_its_creation() -> None:
    inventory = Inventory()
    client = cast("Client", ToldFirst(inventory))
    actor = Actor(client, inventory, dict, None, Knowledge(job().uid), lambda: NOW)
    labels = {cluster_labels.INSTANCE: KEY.name}
    body = {"metadata": {"name": "claim", "namespace": KEY.namespace, "labels": labels}}

    claim = Child(Kind.PersistentVolumeClaim, "claim", "", body)
    asyncio.run(actor.perform(job(), [Create(claim)]))

    kept = inventory.at(KEY).children[Kind.PersistentVolumeClaim, "claim"]
    assert kept.trouble == "its phase is Pending"


def test_a_coordinators_job_that_has_changed_is_left_alone() -> None:
    inventory = Inventory()
    seen = child(Kind.Job)
    inventory.put_child(seen)
    client = cast("Client", Changed())
    actor = Actor(client, inventory, dict, None, Knowledge(job().uid), lambda: NOW)
    again = Child(Kind.Job, seen.name, "", {})

    asyncio.run(actor.perform(job(), [Renew(again, seen.uid, 7)]))

    assert inventory.at(KEY).children == {(Kind.Job, seen.name): seen}


@pytest.mark.parametrize(
    ("role", "requests"),
    [
        (Role.SHARD, [("delete", "pod", None)]),
        (Role.REPLICA, [("delete", "pod", None)]),
        # The finalizer of its Job would hold it for as long as nobody says that it has ended.
        (Role.COORDINATOR, [("delete", "pod", None), ("merge", "pod/status", "Failed")]),
    ],
)
def test_a_pod_on_a_lost_node_is_removed_whatever_holds_it(
    role: Role, requests: list[tuple[str, str, Any]]
) -> None:
    recorder = Recorder()
    client = cast("Client", recorder)
    actor = Actor(client, Inventory(), dict, None, Knowledge(job().uid), lambda: NOW)

    asyncio.run(actor.perform(job(), [RemovePod("pod", "uid", role)]))

    assert recorder.requests == requests
