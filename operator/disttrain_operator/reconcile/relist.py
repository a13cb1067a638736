"""Lists: what watches missed, above all deletions."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from disttrain.errors import DistTrainError
from disttrain.job import cluster_labels
from disttrain_operator import untrusted
from disttrain_operator.cluster.client import Client, Query
from disttrain_operator.kinds import Kind
from disttrain_operator.observed import watched
from disttrain_operator.observed.inventory import Change, Inventory
from disttrain_operator.observed.records import JobKey
from disttrain_operator.observed.watched import Observer
from disttrain_operator.telemetry import metrics

LOG = logging.getLogger(__name__)

EVERY: Final = timedelta(minutes=10)

_WATCHES_TELL_SECONDS: Final = 2.0
"""After a list; of many jobs that start or end something is always on its way."""


def queries(namespaces: tuple[str, ...]) -> list[Query]:
    """All that is listed; children before jobs, so that no job is seen without its own."""
    places: tuple[str | None, ...] = namespaces or (None,)
    made_here = cluster_labels.selector_text(cluster_labels.managed())
    return [
        Query(
            kind=kind,
            namespace=place,
            labels="" if kind is Kind.DistTrainJob else made_here,
            metadata_only=kind in watched.STATELESS,
        )
        for kind in reversed(watched.KINDS)
        for place in places
    ]


class Relister:
    """Compares the inventory with the cluster."""

    def __init__(
        self,
        client: Client,
        inventory: Inventory,
        observer: Observer,
        namespaces: tuple[str, ...],
        changed: Callable[[JobKey], None],
    ) -> None:
        self._client = client
        self._inventory = inventory
        self._observer = observer
        self._queries = queries(namespaces)
        self._changed = changed
        self._newest: dict[Kind, int] = {}
        """Version of the last list of a kind."""

    async def run(self) -> None:
        """Look through everything every ten minutes, one kind after the other, until cancelled."""
        while True:
            for query in self._queries:
                await asyncio.sleep(EVERY.total_seconds() / len(self._queries))
                try:
                    await self.check(query)
                except DistTrainError as error:
                    LOG.warning(
                        "listing failed: %s; watches go on, the next list is in %s", error, EVERY
                    )

    async def check(self, query: Query) -> None:
        """List what a query is about if something of it was missed; the metadata tell."""
        listed: dict[str, int] = {}
        before = self._inventory.versions(query.kind, query.namespace)
        with self._observer.listing() as gone:
            async for page in self._client.pages(replace(query, metadata_only=True)):
                for body in page.items:
                    metadata = untrusted.mapping(body, "metadata")
                    version = untrusted.number(metadata.get("resourceVersion"))
                    listed[str(metadata.get("uid"))] = version
            if listed == before:
                return
            await asyncio.sleep(_WATCHES_TELL_SECONDS)
        after = self._inventory.versions(query.kind, query.namespace)
        left = {uid: version for uid, version in listed.items() if uid not in gone}
        if is_missed(before, left, after):
            await self.list(query)

    async def all(self) -> dict[Query, str]:
        """List everything once; returns from where watches go on."""
        return {query: await self.list(query) for query in self._queries}

    async def list(self, query: Query) -> str:
        """List what a query is about; returns from where a watch goes on."""
        metrics.LISTS.labels(query.kind.name).inc()
        # Whatever is made while the list is read is not in it, and is not gone.
        before = set(self._inventory.versions(query.kind, query.namespace))
        listed, version = await self._take_in(query, self._changed)
        for key in self._inventory.drop_all(query.kind, before - listed):
            self._changed(key)
        return version

    async def job(self, key: JobKey, uid: str) -> None:
        """List the workloads and pods of one job, before something is done that is final."""
        labels = cluster_labels.selector_text(cluster_labels.all_pods(key.name, uid))
        own = self._inventory.at(key)
        for kind in watched.DECISIVE:
            before = {record.uid for record in own.of_kind(kind) if record.owner_uid == uid}
            query = Query(kind=kind, namespace=key.namespace, labels=labels)
            # Whoever asks looks at the job anyway.
            listed, _ = await self._take_in(query, lambda _: None)
            self._inventory.drop_all(kind, before - listed)

    async def _take_in(
        self, query: Query, changed: Callable[[JobKey], None]
    ) -> tuple[set[str], str]:
        """Keep what a query is about; returns the uids of all of it, and the list's version."""
        listed, version = set(), ""
        newest = self._newest.get(query.kind, 0)
        with self._observer.listing() as gone_meanwhile:
            async for page in self._client.pages(query):
                if not version and untrusted.number(page.version) < newest:
                    # A list tells of now, so nothing but a restore of etcd brings older versions.
                    LOG.warning("%s: versions begin again below %d", query.path, newest)
                    self._inventory.forget_versions(query.kind)
                version = page.version
                for body in page.items:
                    uid = str(untrusted.mapping(body, "metadata").get("uid"))
                    listed.add(uid)
                    # A watch may tell of a deletion before the list from before it is read.
                    if uid not in gone_meanwhile:
                        observation = self._observer.seen(query.kind, body)
                        if observation.change is not Change.NOTHING:
                            changed(observation.job)
        self._newest[query.kind] = untrusted.number(version)
        return listed, version


def is_missed(
    before: Mapping[str, int], listed: Mapping[str, int], after: Mapping[str, int]
) -> bool:
    """Whether a watch lost something: by the versions of what was known, of a list, and known then.

    A list is never older than what watches told before it, unless etcd was restored.
    """
    kept = before.keys() & after.keys()
    return not kept <= listed.keys() or any(
        not before.get(uid, version) <= version <= after.get(uid, -1)
        for uid, version in listed.items()
    )
