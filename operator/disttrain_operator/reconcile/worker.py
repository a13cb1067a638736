"""The workers that take jobs out of the queue, a few at once."""

import asyncio
import logging
from datetime import timedelta
from typing import Protocol

from disttrain.errors import DistTrainError
from disttrain_operator.observed.records import JobKey
from disttrain_operator.reconcile.queue import Queue
from disttrain_operator.telemetry import metrics

LOG = logging.getLogger(__name__)

_WORKERS = 12
"""Jobs reconciled at once; all of them wait for the API server most of the time."""

_LONGEST_WAIT_SECONDS = 60.0

_CROWDED_SECONDS = 0.5
"""A job that waits longer waits for others."""


class Reconcile(Protocol):
    """Reconciles a job."""

    async def __call__(self, key: JobKey, num_failures: int, *, crowded: bool) -> float | None:
        """Reconcile a job that failed so often; returns after how many seconds again.

        None for no need. `crowded`: other jobs wait.
        """


class Workers:
    """The queue in a running event loop. Only for its own thread."""

    def __init__(self, reconcile: Reconcile) -> None:
        self._reconcile = reconcile
        # A namespace with thousands of jobs must not hold up another's suspend.
        self._queue: Queue[JobKey] = Queue(lambda key: key.namespace)
        self._added = asyncio.Event()
        self._last_iteration = 0.0

    def add(self, key: JobKey, after: timedelta = timedelta(0)) -> None:
        self._queue.add(key, self._now() + after.total_seconds())
        self._added.set()

    def add_changed(self, key: JobKey) -> None:
        """Reconcile a job now: its owner changed it, so what failed before may go well."""
        self._queue.reset_backoff(key)
        self.add(key)

    async def run(self) -> None:
        free = asyncio.Semaphore(_WORKERS)
        async with asyncio.TaskGroup() as group:
            while True:
                await free.acquire()
                key = await self._next()
                group.create_task(self._work_on(key, free))

    def is_alive(self, within: timedelta) -> bool:
        """Whether the event loop came round lately."""
        return self._now() - self._last_iteration < within.total_seconds()

    def measure(self) -> None:
        now = self._now()
        metrics.QUEUE_DEPTH.set(self._queue.num_due(now))
        metrics.QUEUE_WAIT_SECONDS.set(self._queue.lateness(now))

    async def _next(self) -> JobKey:
        while True:
            self._last_iteration = self._now()
            self._added.clear()
            key = self._queue.take(self._now())
            if key is not None:
                return key
            await self._wait()

    async def _wait(self) -> None:
        at = self._queue.next_at()
        seconds = _LONGEST_WAIT_SECONDS if at is None else at - self._now()
        try:
            async with asyncio.timeout(max(0.0, min(seconds, _LONGEST_WAIT_SECONDS))):
                await self._added.wait()
        except TimeoutError:
            return

    async def _work_on(self, key: JobKey, free: asyncio.Semaphore) -> None:
        try:
            with metrics.RECONCILE_SECONDS.time():
                crowded = self._queue.lateness(self._now()) > _CROWDED_SECONDS
                seconds = await self._reconcile(key, self._queue.failures(key), crowded=crowded)
        except DistTrainError as error:
            self._failed(key, error)
        except Exception as error:
            LOG.exception("%s: unexpected error", key)
            self._failed(key, error)
        else:
            self._queue.done(key)
            if seconds is not None:
                self.add(key, timedelta(seconds=max(0.0, seconds)))
        finally:
            # It may have been added meanwhile, and waited for this to end.
            self._added.set()
            free.release()

    def _failed(self, key: JobKey, error: Exception) -> None:
        metrics.RECONCILE_ERRORS.labels(type(error).__name__).inc()
        delay = self._queue.failed(key, self._now())
        LOG.warning("%s: %s; again in %.0f s", key, error, delay)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
