import asyncio
from datetime import timedelta

import pytest

from builders.fake_cluster import FakeClient, World
from builders.operator_jobs import job
from disttrain_operator.cluster.client import Query
from disttrain_operator.cluster.credentials import Credentials
from disttrain_operator.errors import NotHeld
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.records import JobKey
from disttrain_operator.operator import Operator
from disttrain_operator.reconcile.reconciler import Reconciler
from disttrain_operator.reconcile.worker import Workers
from disttrain_operator.settings import Settings
from disttrain_operator.telemetry.metrics import REGISTRY


def test_an_operator_whose_workers_take_no_turn_is_not_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = {"lately": True}

    def lately(_: Workers, within: timedelta) -> bool:
        assert within >= timedelta(minutes=2), "an idle queue takes a turn each minute"
        return turns["lately"]

    monkeypatch.setattr(Workers, "is_alive", lately)

    async def scenario() -> None:
        operator = Operator(FakeClient(World()), Credentials("https://nowhere", None), Settings())
        assert operator.is_alive()
        turns["lately"] = False
        assert operator.is_alive(), "it still reads its first list"
        operator._ready.set()
        assert not operator.is_alive()
        turns["lately"] = True
        assert operator.is_alive()
        operator._follower._last_begun[Query(kind=Kind.Pod)] = -1000.0
        assert not operator.is_alive(), "a watch hangs"

    asyncio.run(scenario())


def test_only_who_holds_the_lease_looks_at_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    key, looked = JobKey("here", "job"), []

    async def reconcile(_: Reconciler, at: JobKey, num_failures: int, *, crowded: bool) -> None:
        assert (num_failures, crowded) == (0, False)
        looked.append(at)

    monkeypatch.setattr(Reconciler, "look", reconcile)

    async def scenario() -> None:
        operator = Operator(FakeClient(World()), Credentials("https://nowhere", None), Settings())
        with pytest.raises(NotHeld):
            await operator._reconcile(key, 0, crowded=False)
        await operator._scope.take()
        await operator._reconcile(key, 0, crowded=False)
        assert looked == [key]
        operator._scope._others = {"here": "another"}
        assert await operator._reconcile(key, 0, crowded=False) is None

    asyncio.run(scenario())

    assert looked == [key]


def test_jobs_that_another_left_are_looked_at() -> None:
    async def scenario() -> None:
        operator = Operator(FakeClient(World()), Credentials("https://nowhere", None), Settings())
        operator._inventory.put(job())
        operator._enqueue_all_in("elsewhere")
        assert len(operator._workers._queue) == 0
        operator._enqueue_all_in(job().key.namespace)
        assert len(operator._workers._queue) == 1

    asyncio.run(scenario())


def test_jobs_are_counted_by_namespace() -> None:
    operator = Operator(FakeClient(World()), Credentials("https://nowhere", None), Settings())
    for namespace, name in (("a", "one"), ("a", "two"), ("b", "one")):
        key = JobKey(namespace, name)
        operator._inventory.put(job({"key": key, "phase": "Running", "strategy": "downpour"}))

    operator._count_jobs()

    found = {
        namespace: REGISTRY.get_sample_value(
            "disttrain_operator_jobs",
            {"job_namespace": namespace, "phase": "Running", "strategy": "downpour"},
        )
        for namespace in ("a", "b")
    }
    assert found == {"a": 2, "b": 1}
