"""The operator's parts, put together."""

import asyncio
import importlib.metadata
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple

from disttrain.job.credentials import Trust
from disttrain_operator import handlers
from disttrain_operator.cluster.client import Client, Query
from disttrain_operator.cluster.credentials import Credentials
from disttrain_operator.errors import InvalidSettings, NotFound, NotHeld
from disttrain_operator.handlers import Follower
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.inventory import Change, Inventory
from disttrain_operator.observed.records import JobKey
from disttrain_operator.observed.watched import Observer
from disttrain_operator.reconcile import report
from disttrain_operator.reconcile.reconciler import Reconciler
from disttrain_operator.reconcile.relist import Relister
from disttrain_operator.reconcile.scope import Holder, Scope
from disttrain_operator.reconcile.worker import Workers
from disttrain_operator.settings import Settings
from disttrain_operator.signing import endpoint
from disttrain_operator.signing import master as master_secret
from disttrain_operator.signing.authorities import Authorities
from disttrain_operator.telemetry import metrics, server

LOG = logging.getLogger(__name__)

_STALLED = timedelta(minutes=3)
_DEAF = timedelta(minutes=10)
"""A watch, its limit of silence and the list after it take less."""


class Signer(NamedTuple):
    """Who signs, and where pods ask."""

    authorities: Authorities
    address: str


class Operator:
    """One operator, in one event loop."""

    def __init__(self, client: Client, credentials: Credentials, settings: Settings) -> None:
        self._client = client
        self._credentials = credentials
        self._settings = settings
        self._signer: Signer | None = None
        self._inventory = Inventory()
        self._observer = Observer(self._inventory, report.FIELDS)
        self._relister = Relister(
            client, self._inventory, self._observer, settings.namespaces, self._enqueue
        )
        self._reconciler = Reconciler(
            client, self._inventory, settings.manifests, self._trust, self._relister.job
        )
        self._workers = Workers(self._reconcile)
        holder = Holder(
            identity=settings.identity,
            namespaces=settings.namespaces,
            manager=settings.manifests.manager,
        )
        self._scope = Scope(client, holder, self._enqueue_all_in, time.monotonic)
        self._follower = Follower(client, self._relister, self._on_event)
        self._ready = asyncio.Event()

    async def run(self) -> None:
        """Look after jobs until cancelled. Raises InvalidSettings where the CRD is missing."""
        metrics.BUILD_INFO.labels(_version()).set(1)
        async with server.serving(
            self._settings.metrics_port,
            alive=self.is_alive,
            ready=self._ready.is_set,
            before_metrics=self._measure,
        ):
            await self._scope.take()
            try:
                versions = await self._list_everything()
                async with self._signing():
                    LOG.info("%d jobs are there", len(self._inventory))
                    await self._work(versions)
            finally:
                await self._scope.release()

    def is_alive(self) -> bool:
        """Whether work goes on; while the first list is read nothing can stall yet."""
        if not self._ready.is_set():
            return True
        return self._workers.is_alive(_STALLED) and self._follower.is_alive(_DEAF)

    @asynccontextmanager
    async def _signing(self) -> AsyncIterator[None]:
        """Sign certificates from now on: who asks is among what was seen."""
        chosen = self._settings.signing
        master = await master_secret.take(self._client, chosen.namespace, chosen.secret)
        authorities = Authorities(master, chosen.lifetime)
        host = chosen.host or self._credentials.own_address()
        listener = endpoint.bound(chosen.port)
        port = listener.getsockname()[1]
        self._signer = Signer(authorities, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        answering = endpoint.Endpoint(self._client, self._inventory, authorities)
        async with endpoint.serving(answering, listener, authorities.of_endpoint(host)):
            LOG.info("pods get their certificates at %s", self._signer.address)
            yield

    def _trust(self, job_uid: str) -> Trust:
        if self._signer is None:
            message = "nothing is reconciled before certificates are signed"
            raise AssertionError(message)
        return self._signer.authorities.trust(job_uid, self._signer.address)

    async def _list_everything(self) -> dict[Query, str]:
        """Nothing is decided before all that is there was seen."""
        try:
            return await self._relister.all()
        except NotFound as error:
            message = f"the CRD of DistTrainJob is not installed: {error}"
            raise InvalidSettings(message) from error

    async def _work(self, versions: dict[Query, str]) -> None:
        watches = handlers.run(
            self._credentials, self._settings.namespaces, self._on_event, self._ready
        )
        tasks = [
            asyncio.create_task(work)
            for work in (
                watches,
                self._follower.run(versions),
                self._workers.run(),
                self._relister.run(),
                self._scope.run(),
            )
        ]
        try:
            # kopf ends when it is told to by a signal; the others never do.
            finished, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in finished:
            task.result()

    async def _reconcile(self, key: JobKey, num_failures: int, *, crowded: bool) -> float | None:
        if self._scope.is_left_to_others(key.namespace):
            return None
        if not self._scope.is_held():
            message = "the Lease could not be renewed: another operator may look after this job now"
            raise NotHeld(message)
        return await self._reconciler.look(key, num_failures, crowded=crowded)

    def _enqueue_all_in(self, namespace: str) -> None:
        for key in self._inventory.places():
            if key.namespace == namespace:
                self._workers.add(key)

    def _enqueue(self, key: JobKey) -> None:
        if key == key.common:
            # What jobs share concerns all of the namespace.
            self._enqueue_all_in(key.namespace)
        else:
            self._workers.add(key)

    def _on_event(self, kind: Kind, event_type: str | None, body: dict[str, Any]) -> None:
        deleted = event_type == "DELETED"
        job, change = (
            self._observer.gone(kind, body) if deleted else self._observer.seen(kind, body)
        )
        if kind is Kind.DistTrainJob:
            if change is not Change.NOTHING:
                self._workers.add_changed(job)
            return
        wait = change.debounce(self._inventory.at(job).job)
        if wait is not None:
            self._workers.add(job, wait)

    def _measure(self) -> None:
        self._workers.measure()
        self._count_jobs()

    def _count_jobs(self) -> None:
        counted: Counter[tuple[str, str, str]] = Counter()
        for key in self._inventory.places():
            job = self._inventory.at(key).job
            if job is not None:
                counted[key.namespace, job.phase, job.strategy] += 1
        metrics.JOBS.clear()
        for labels, number in counted.items():
            metrics.JOBS.labels(*labels).set(number)


def _version() -> str:
    """Of the package; from a folder that was never installed it has none."""
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("disttrain")
    return "unknown"
