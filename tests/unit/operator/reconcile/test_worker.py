import asyncio
from datetime import timedelta

import pytest

from disttrain_operator.observed.records import JobKey
from disttrain_operator.reconcile import worker
from disttrain_operator.reconcile.queue import Queue
from disttrain_operator.reconcile.worker import Workers
from disttrain_operator.telemetry.metrics import REGISTRY


def test_a_look_is_told_whether_others_wait_for_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_CROWDED_SECONDS", 0.0)
    monkeypatch.setattr(worker, "_WORKERS", 1)
    told: list[tuple[str, bool]] = []

    async def scenario() -> None:
        all_were_looked_at = asyncio.Event()

        async def reconcile(key: JobKey, num_failures: int, *, crowded: bool) -> None:
            assert num_failures == 0
            told.append((key.name, crowded))
            if len(told) == 3:
                all_were_looked_at.set()

        workers = Workers(reconcile)
        for name in ("first", "second", "third"):
            workers.add(JobKey("here", name))
        task = asyncio.create_task(workers.run())
        async with asyncio.timeout(10):
            await all_were_looked_at.wait()
        task.cancel()

    asyncio.run(scenario())

    assert told == [("first", True), ("second", True), ("third", False)]


def test_jobs_of_a_namespace_do_not_wait_for_all_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "_WORKERS", 1)
    looked_at: list[JobKey] = []

    async def scenario() -> None:
        all_were_looked_at = asyncio.Event()

        async def reconcile(key: JobKey, num_failures: int, *, crowded: bool) -> None:
            del num_failures, crowded
            looked_at.append(key)
            if len(looked_at) == 21:
                all_were_looked_at.set()

        workers = Workers(reconcile)
        for number in range(20):
            workers.add(JobKey("crowd", f"job-{number}"))
        workers.add(JobKey("alone", "job"))
        task = asyncio.create_task(workers.run())
        async with asyncio.timeout(10):
            await all_were_looked_at.wait()
        task.cancel()

    asyncio.run(scenario())

    assert JobKey("alone", "job") in looked_at[:2]


async def ignore(key: JobKey, num_failures: int, *, crowded: bool) -> None:
    del key, num_failures, crowded


def test_workers_that_take_no_turn_are_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> list[bool]:
        within = timedelta(minutes=3)
        now = 10_000.0
        monkeypatch.setattr(Workers, "_now", staticmethod(lambda: now))
        workers = Workers(ignore)
        task = asyncio.create_task(workers.run())
        found = [workers.is_alive(within)]
        await asyncio.sleep(0)
        found.append(workers.is_alive(within))
        task.cancel()
        now += 179
        found.append(workers.is_alive(within))
        now += 2
        return [*found, workers.is_alive(within)]

    assert asyncio.run(scenario()) == [False, True, True, False]


def test_a_queue_in_which_nothing_is_due_takes_a_turn_each_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Asked(Queue[JobKey]):
        async def often(self) -> None:
            """Wait until it was asked several times."""
            await enough.wait()

        def take(self, now: float) -> JobKey | None:
            turns.append(now)
            if len(turns) == 3:
                enough.set()
            return super().take(now)

    async def scenario() -> None:
        workers = Workers(ignore)
        workers._queue = queue = Asked()
        workers.add(JobKey("here", "job"), timedelta(weeks=1))
        task = asyncio.create_task(workers.run())
        async with asyncio.timeout(10):
            await queue.often()
        task.cancel()

    turns: list[float] = []
    enough = asyncio.Event()
    monkeypatch.setattr(worker, "_LONGEST_WAIT_SECONDS", worker._LONGEST_WAIT_SECONDS / 6000)
    asyncio.run(scenario())


def test_the_depth_of_the_queue_is_what_is_due() -> None:
    async def scenario() -> None:
        workers = Workers(ignore)
        workers.add(JobKey("here", "now"))
        workers.add(JobKey("here", "next week"), timedelta(weeks=1))
        workers.measure()

    asyncio.run(scenario())

    assert REGISTRY.get_sample_value("disttrain_operator_queue_depth") == 1
    assert (REGISTRY.get_sample_value("disttrain_operator_queue_wait_seconds") or 0) >= 0
