"""Many requests at once, and waiting for what they lead to, for benchmarks."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

AT_ONCE = 32


async def until(holds: Callable[[], bool | Awaitable[bool]], limit: float) -> None:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        answer = holds()
        if answer if isinstance(answer, bool) else await answer:
            return
        await asyncio.sleep(0.2)
    message = f"not in {limit} s"
    raise TimeoutError(message)


async def together(values: Iterable[Any], work: Callable[[Any], Awaitable[Any]]) -> None:
    """Do something for each value, many at once."""
    rest = iter(values)

    async def one_after_the_other() -> None:
        for value in rest:
            await work(value)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(one_after_the_other())
