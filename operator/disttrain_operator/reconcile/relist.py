"""Lists of everything: what watches missed, above all deletions."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from disttrain.errors import DistTrainError
from disttrain.job import cluster_labels
from disttrain_operator.cluster.client import Client
from disttrain_operator.kinds import Kind
from disttrain_operator.observed import watched
from disttrain_operator.observed.inventory import Inventory
from disttrain_operator.observed.records import JobKey
from disttrain_operator.observed.watched import Sights

LOG = logging.getLogger(__name__)

EVERY: Final = timedelta(minutes=10)


class Relister:
    """Compares the inventory with the cluster."""

    def __init__(
        self,
        client: Client,
        inventory: Inventory,
        sights: Sights,
        namespaces: tuple[str, ...],
        changed: Callable[[JobKey], None],
    ) -> None:
        self._client = client
        self._inventory = inventory
        self._sights = sights
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self._changed = changed

    async def run(self) -> None:
        """List every ten minutes, until cancelled."""
        while True:
            await asyncio.sleep(EVERY.total_seconds())
            try:
                await self.all()
            except DistTrainError as error:
                LOG.warning(
                    "listing failed: %s; watches go on, the next list is in %s", error, EVERY
                )

    async def all(self) -> None:
        """List everything once. Children first, so that no job is seen without those it has."""
        for kind in reversed(watched.KINDS):
            for namespace in self._namespaces:
                await self._list(kind, namespace)

    async def _list(self, kind: Kind, namespace: str | None) -> None:
        selector = cluster_labels.selector_text(cluster_labels.managed())
        # Whatever is made while the list is read is not in it, and is not gone.
        before = set(self._inventory.uids(kind))
        listed = set()
        async for body in self._client.list(
            kind,
            namespace,
            "" if kind is Kind.DistTrainJob else selector,
            metadata_only=kind in watched.STATELESS,
        ):
            listed.add(str(body["metadata"].get("uid")))
            key = self._sights.seen(kind, body)
            if key is not None:
                self._changed(key)
        gone = before - listed
        for key in self._inventory.drop_all(kind, gone, namespace):
            self._changed(key)
