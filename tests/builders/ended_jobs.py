"""How late jobs that have ended are deleted after their time, for benchmarks."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import Any

from builders import many_at_once, many_jobs
from builders.api_server import METADATA_LIST, ApiServer
from builders.many_jobs import JOBS_PATH
from disttrain.job.conditions import ConditionType

KEEP_SECONDS = 2
LIMIT_SECONDS = 120


async def lateness(api: ApiServer, number: int) -> list[float]:
    """Seconds after their instants at which so many jobs went, whose coordinators end at once."""
    listed = await api.get(f"{JOBS_PATH}?limit=1", accept=METADATA_LIST)
    version = listed["metadata"]["resourceVersion"]
    await many_at_once.together(
        range(number), lambda each: api.post(JOBS_PATH, _short_lived(f"ended{each}"))
    )
    late: list[float] = []
    async with asyncio.timeout(LIMIT_SECONDS), aclosing(_deleted(api, version)) as deleted:
        async for job in deleted:
            late.append(time.time() - _ended_at(job) - KEEP_SECONDS)
            if len(late) == number:
                break
    return sorted(late)


def _short_lived(name: str) -> dict[str, Any]:
    made = many_jobs.job(name)
    made["spec"]["ttlSecondsAfterFinished"] = KEEP_SECONDS
    return made


async def _deleted(api: ApiServer, version: str) -> AsyncGenerator[dict[str, Any], None]:
    async with aclosing(api.watch(JOBS_PATH, version)) as events:
        async for event in events:
            if event["type"] == "DELETED":
                yield event["object"]


def _ended_at(job: dict[str, Any]) -> float:
    conditions = {each["type"]: each for each in job["status"]["conditions"]}
    told = conditions[ConditionType.COMPLETE]["lastTransitionTime"]
    return datetime.fromisoformat(told).timestamp()
