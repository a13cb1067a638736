import asyncio

import pytest

from disttrain_operator.observed.records import JobKey
from disttrain_operator.reconcile import worker
from disttrain_operator.reconcile.worker import Workers


def test_a_look_is_told_whether_others_wait_for_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_CROWDED_SECONDS", 0.0)
    monkeypatch.setattr(worker, "_WORKERS", 1)
    told: list[tuple[str, bool]] = []

    async def scenario() -> None:
        all_were_looked_at = asyncio.Event()

        async def look(key: JobKey, num_failures: int, *, crowded: bool) -> None:
            assert num_failures == 0
            told.append((key.name, crowded))
            if len(told) == 3:
                all_were_looked_at.set()

        workers = Workers(look)
        for name in ("first", "second", "third"):
            workers.add(JobKey("here", name))
        task = asyncio.create_task(workers.run())
        async with asyncio.timeout(10):
            await all_were_looked_at.wait()
        task.cancel()

    asyncio.run(scenario())

    assert told == [("first", True), ("second", True), ("third", False)]
