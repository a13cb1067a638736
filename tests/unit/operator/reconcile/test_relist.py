import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from builders.fake_cluster import FakeClient, World
from disttrain_operator.cluster.client import Page, Query
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.inventory import Inventory
from disttrain_operator.observed.records import JobKey
from disttrain_operator.observed.watched import Observer
from disttrain_operator.reconcile import relist
from disttrain_operator.reconcile.relist import Relister, queries

KEY = JobKey("somewhere", "job")
UID = "uid-of-job"
LABELS = {
    "app.kubernetes.io/instance": KEY.name,
    "app.kubernetes.io/managed-by": "disttrain-operator",
    "app.kubernetes.io/component": "replica",
    "disttrain.dev/job-uid": UID,
}


@pytest.fixture(autouse=True)
def watches_that_tell_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relist, "_WATCHES_TELL_SECONDS", 0.0)


def body(name: str) -> dict[str, Any]:
    metadata = {"namespace": KEY.namespace, "name": name, "labels": LABELS}
    return {"metadata": {**metadata, "ownerReferences": [{"uid": UID}]}, "spec": {}}


class Operator:
    def __init__(self, world: World, client: FakeClient | None = None) -> None:
        self.inventory = Inventory()
        self.observer = Observer(self.inventory, frozenset())
        self.changed: list[JobKey] = []
        self.relister = Relister(
            client or FakeClient(world), self.inventory, self.observer, (), self.changed.append
        )


def test_a_deletion_that_a_watch_lost_is_found_by_the_next_list() -> None:
    world = World()
    world.create(Kind.ReplicaSet, body("job-replica"))
    operator = Operator(world)
    asyncio.run(operator.relister.all())
    assert operator.inventory.at(KEY).children
    operator.changed.clear()

    world.delete((Kind.ReplicaSet, KEY.namespace, "job-replica"))
    asyncio.run(operator.relister.all())

    assert not operator.inventory.at(KEY).children
    assert operator.changed == [KEY]


class CountingClient(FakeClient):
    """Knows what was listed."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.listed: list[bool] = []
        """For each list, whether only the metadata were asked for."""

    async def pages(self, query: Query) -> AsyncIterator[Page]:
        self.listed.append(query.metadata_only)
        async for page in super().pages(query):
            yield page


def test_while_nothing_was_missed_only_metadata_are_read() -> None:
    world = World()
    world.create(Kind.ReplicaSet, body("job-replica"))
    client = CountingClient(world)
    operator = Operator(world, client)
    query = Query(kind=Kind.ReplicaSet)
    asyncio.run(operator.relister.list(query))
    client.listed.clear()

    asyncio.run(operator.relister.check(query))
    assert client.listed == [True]

    world.change((Kind.ReplicaSet, KEY.namespace, "job-replica"), {"spec": {"replicas": 7}})
    asyncio.run(operator.relister.check(query))
    assert client.listed == [True, True, False]
    (seen,) = operator.inventory.at(KEY).children.values()
    assert seen.wanted == 7

    world.delete((Kind.ReplicaSet, KEY.namespace, "job-replica"))
    asyncio.run(operator.relister.check(query))
    assert not operator.inventory.at(KEY).children


def test_what_a_watch_tells_soon_after_a_list_was_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    for name in ("job-replica", "job-other"):
        world.create(Kind.ReplicaSet, body(name))
    client = CountingClient(world)
    operator = Operator(world, client)
    query = Query(kind=Kind.ReplicaSet)
    asyncio.run(operator.relister.list(query))
    client.listed.clear()
    changed = world.change(
        (Kind.ReplicaSet, KEY.namespace, "job-replica"), {"spec": {"replicas": 7}}
    )
    going = world.find((Kind.ReplicaSet, KEY.namespace, "job-other"))

    async def watches(_: float) -> None:
        operator.observer.seen(Kind.ReplicaSet, changed)
        operator.observer.gone(Kind.ReplicaSet, going)

    monkeypatch.setattr(asyncio, "sleep", watches)
    asyncio.run(operator.relister.check(query))

    assert client.listed == [True]


@pytest.mark.parametrize(
    ("before", "listed", "after", "missed"),
    [
        ({}, {}, {}, False),
        ({"a": 1}, {"a": 1}, {"a": 1}, False),
        ({"a": 1}, {"a": 2}, {"a": 2}, False),
        ({"a": 1}, {"a": 2}, {"a": 3}, False),
        ({}, {}, {"a": 3}, False),
        ({"a": 1}, {}, {}, False),
        ({}, {"a": 2}, {}, True),
        ({"a": 1}, {"a": 2}, {"a": 1}, True),
        ({"a": 1}, {}, {"a": 1}, True),
        # etcd was restored.
        ({"a": 9}, {"a": 2}, {"a": 9}, True),
    ],
)
def test_what_is_missed(
    before: dict[str, int], listed: dict[str, int], after: dict[str, int], *, missed: bool
) -> None:
    assert relist.is_missed(before, listed, after) is missed


def test_a_list_of_one_job_finds_its_lost_pods_and_leaves_others_alone() -> None:
    world = World()
    for name in ("job-replica-a", "job-replica-b"):
        world.create(Kind.Pod, body(name))
    operator = Operator(world)
    asyncio.run(operator.relister.all())

    world.delete((Kind.Pod, KEY.namespace, "job-replica-a"))
    asyncio.run(operator.relister.job(KEY, UID))

    assert set(operator.inventory.at(KEY).pods) == {"job-replica-b"}
    asyncio.run(operator.relister.job(KEY, "uid-of-another"))
    assert set(operator.inventory.at(KEY).pods) == {"job-replica-b"}


LISTS: tuple[tuple[Kind, Callable[[Relister], Coroutine[Any, Any, object]]], ...] = (
    (Kind.ReplicaSet, lambda relister: relister.list(Query(kind=Kind.ReplicaSet))),
    (Kind.ReplicaSet, lambda relister: relister.job(KEY, UID)),
    (Kind.Pod, lambda relister: relister.job(KEY, UID)),
)


@pytest.mark.parametrize(("kind", "read"), LISTS, ids=["all", "of a job", "pods of a job"])
def test_what_is_deleted_while_a_list_is_read_does_not_come_back(
    kind: Kind, read: Callable[[Relister], Coroutine[Any, Any, object]]
) -> None:
    world = World()
    made = world.create(kind, body("job-replica"))

    class SlowClient(FakeClient):
        async def pages(self, query: Query) -> AsyncIterator[Page]:
            async for page in super().pages(query):
                if query.kind is kind:
                    operator.observer.gone(kind, made)
                yield page

    operator = Operator(world, SlowClient(world))
    operator.observer.seen(kind, made)
    assert operator.inventory.versions(kind)

    asyncio.run(read(operator.relister))

    assert not operator.inventory.versions(kind)


@pytest.mark.parametrize(("kind", "read"), LISTS[:1], ids=["all"])
def test_what_is_made_while_a_list_is_read_is_not_gone(
    kind: Kind, read: Callable[[Relister], Coroutine[Any, Any, object]]
) -> None:
    world = World()
    first = world.create(kind, body("job-replica"))

    class SlowClient(FakeClient):
        async def pages(self, query: Query) -> AsyncIterator[Page]:
            async for page in super().pages(query):
                # The list is older than what the watch tells while it is read.
                operator.observer.seen(kind, world.create(kind, body("made-meanwhile")))
                yield page

    operator = Operator(world, SlowClient(world))
    operator.observer.seen(kind, first)

    asyncio.run(read(operator.relister))

    assert {name for _, name in operator.inventory.at(KEY).children} == {
        "job-replica",
        "made-meanwhile",
    }


def test_after_a_restore_of_etcd_what_is_there_counts_although_its_version_is_older() -> None:
    world = World()
    key = (Kind.ReplicaSet, KEY.namespace, "job-replica")
    world.create(Kind.ReplicaSet, body("job-replica"))
    world.create(Kind.Pod, body("job-replica-a"))
    for replicas in range(20):
        world.change(key, {"spec": {"replicas": replicas}})
    operator = Operator(world)
    asyncio.run(operator.relister.all())

    world._numbers = itertools.count(1)
    world.change(key, {"spec": {"replicas": 7}})
    asyncio.run(operator.relister.check(Query(kind=Kind.ReplicaSet)))

    (seen,) = operator.inventory.at(KEY).children.values()
    assert (seen.wanted, seen.version) == (7, 1)
    world.change(key, {"spec": {"replicas": 8}})
    asyncio.run(operator.relister.list(Query(kind=Kind.ReplicaSet)))
    (seen,) = operator.inventory.at(KEY).children.values()
    assert seen.wanted == 8, "and from then on newer ones alone"


def test_who_finds_out_about_a_restore_of_etcd_by_one_job_forgets_all_versions() -> None:
    world = World()
    elsewhere = (Kind.ReplicaSet, "elsewhere", "job-replica")
    world.create(Kind.ReplicaSet, body("job-replica"))
    other = body("job-replica")
    other["metadata"]["namespace"] = "elsewhere"
    world.create(Kind.ReplicaSet, other)
    for replicas in range(20):
        world.change(elsewhere, {"spec": {"replicas": replicas}})
    operator = Operator(world)
    asyncio.run(operator.relister.all())

    world._numbers = itertools.count(1)
    world.change(elsewhere, {"spec": {"replicas": 7}})
    asyncio.run(operator.relister.job(KEY, UID))
    asyncio.run(operator.relister.check(Query(kind=Kind.ReplicaSet)))

    (seen,) = operator.inventory.at(JobKey("elsewhere", "job")).children.values()
    assert seen.wanted == 7


def test_jobs_are_listed_after_all_that_they_have() -> None:
    kinds = [query.kind for query in queries(("a", "b"))]

    assert kinds[-2:] == [Kind.DistTrainJob, Kind.DistTrainJob]
    assert kinds.count(Kind.Pod) == 2
    assert all(query.namespace is None for query in queries(()))


def test_nobody_follows_the_events_of_a_cluster() -> None:
    assert Kind.Event not in {query.kind for query in queries(())}


def test_an_object_that_cannot_be_understood_ends_no_list(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    odd = body("job-odd")
    odd["metadata"]["labels"] = {**LABELS, "app.kubernetes.io/component": ["no", "text"]}
    world.objects[Kind.Pod, KEY.namespace, "job-odd"] = odd
    world.create(Kind.Pod, body("job-replica"))
    operator = Operator(world)

    asyncio.run(operator.relister.all())

    assert set(operator.inventory.at(KEY).pods) == {"job-replica"}
    assert "job-odd" in caplog.text
