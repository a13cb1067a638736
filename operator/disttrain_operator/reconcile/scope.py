"""The operator's hold on its namespaces: no two look after the same jobs."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from disttrain.errors import RetryableError
from disttrain_operator.cluster.client import Client, Query
from disttrain_operator.errors import Conflict, Forbidden, NotFound, ScopeLost
from disttrain_operator.kinds import Kind
from disttrain_operator.policies import leases
from disttrain_operator.policies.leases import ObservedLease

LOG = logging.getLogger(__name__)

_SAY_AGAIN_SECONDS: Final = 60.0
_HEARD_SECONDS: Final = 2 * leases.RENEW_SECONDS
"""After so long the operator of all namespaces knows who took one of them from it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """Who wants to hold what."""

    identity: str
    """The same after a restart of the same pod, which need not wait for itself."""
    namespaces: tuple[str, ...]
    """Empty: all."""
    manager: str
    """Which jobs: those with this `managedBy`."""


class Scope:
    """Leases of an operator: one per namespace, or one for the cluster. For one event loop."""

    def __init__(
        self,
        client: Client,
        holder: Holder,
        left: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        """`left` is told the namespaces that another operator held and holds no more."""
        self._client = client
        self._holder = holder
        self._left = left
        self._clock = clock
        self._lease = leases.name(holder.manager)
        self._places = tuple(sorted(holder.namespaces)) or (leases.WHOLE_CLUSTER,)
        self._leases: dict[str, ObservedLease] = {}
        self._others: dict[str, str] = {}
        self._renewed_at = float("-inf")

    def is_held(self) -> bool:
        """Whether nobody else can have taken it meanwhile."""
        return self._clock() - self._renewed_at < leases.LAST_SECONDS

    def is_left_to_others(self, namespace: str) -> bool:
        return namespace in self._others

    async def take(self) -> None:
        said_at = float("-inf")
        while said := await self._hindrance():
            if self._clock() - said_at >= _SAY_AGAIN_SECONDS:
                LOG.warning("waiting, and touching no job: %s", said)
                said_at = self._clock()
            await asyncio.sleep(leases.RENEW_SECONDS)
        if said_at > float("-inf"):
            LOG.info("nobody else is in the way any more")
        if self._holder.namespaces and await self._somebody_holds_all():
            # It leaves these namespaces to us once it has heard of it.
            await asyncio.sleep(_HEARD_SECONDS)

    async def run(self) -> None:
        """Renew until cancelled. Raises ScopeLost when another operator holds it."""
        while True:
            await asyncio.sleep(leases.RENEW_SECONDS)
            try:
                await self.renew()
            except RetryableError as error:
                LOG.warning("the Lease was not renewed: %s", error)

    async def renew(self) -> None:
        """Renew once. Raises ScopeLost when another operator holds it."""
        said = await self.attempt()
        if said:
            raise ScopeLost(said)

    async def attempt(self) -> str:
        """Take or renew everything; returns what is in the way, or nothing."""
        # In this order, so that two that want several each never wait for each other.
        for place in self._places:
            if said := await self._attempt_at(place):
                return said
        if not self._holder.namespaces:
            await self._yield_to_others()
        self._renewed_at = self._clock()
        return ""

    async def release(self) -> None:
        """Give everything back, as far as the API server takes it: the next one need not wait."""
        for place, lease in self._leases.items():
            if lease.holder == self._holder.identity:
                try:
                    await self._write(place, "", version=None)
                except (RetryableError, NotFound, Conflict, Forbidden) as error:
                    LOG.warning("the Lease in %s was not given back: %s", place, error)
        self._renewed_at = float("-inf")

    async def _hindrance(self) -> str:
        try:
            return await self.attempt()
        except RetryableError as error:
            return str(error)

    async def _somebody_holds_all(self) -> bool:
        try:
            found = await self._client.get(Kind.Lease, leases.WHOLE_CLUSTER, self._lease)
        except NotFound:
            return False
        except (Forbidden, RetryableError):
            return True
        return leases.is_live(leases.seen(None, found, self._clock()), self._clock())

    async def _attempt_at(self, place: str) -> str:
        try:
            return await self._attempt_with(place)
        except Conflict:
            return f"another operator was faster to take Lease {place}/{self._lease}"
        except Forbidden as error:
            return f"the right to hold a Lease is missing; the chart grants it: {error}"
        except NotFound:
            # Where there is no namespace, there is no job either.
            return ""

    async def _attempt_with(self, place: str) -> str:
        me, now = self._holder.identity, self._clock()
        known = self._leases.get(place)
        if known is not None and known.holder == me and leases.is_live(known, now):
            # Who wrote it last need not read it: the version tells whether somebody else did.
            with suppress(Conflict, NotFound):
                await self._write(place, me, known.version)
                return ""
        try:
            found = await self._client.get(Kind.Lease, place, self._lease)
        except NotFound:
            made = leases.body(place, self._lease, me, datetime.now(UTC))
            answer = await self._client.create(Kind.Lease, made)
            self._leases[place] = leases.seen(None, {**made, **answer}, now)
            return ""
        lease = self._leases[place] = leases.seen(self._leases.get(place), found, now)
        if lease.holder != me and leases.is_live(lease, now):
            return f"{lease.holder} holds Lease {place}/{self._lease}, and looks after these jobs"
        await self._write(place, me, lease.version)
        return ""

    async def _write(self, place: str, holder: str, version: str | None) -> None:
        metadata = {} if version is None else {"resourceVersion": version}
        patch = {"metadata": metadata, "spec": leases.spec(holder, datetime.now(UTC))}
        answer = await self._client.merge(Kind.Lease, place, self._lease, patch)
        self._leases[place] = leases.seen(None, answer, self._clock())

    async def _yield_to_others(self) -> None:
        """Leave namespaces to the operators that look after them alone."""
        others: dict[str, str] = {}
        query = Query(kind=Kind.Lease, fields=f"metadata.name={self._lease}")
        async for page in self._client.pages(query):
            for found in page.items:
                place = str(found["metadata"]["namespace"])
                if place in self._places:
                    continue
                lease = leases.seen(self._leases.get(place), found, self._clock())
                self._leases[place] = lease
                if leases.is_live(lease, self._clock()):
                    others[place] = lease.holder
        before, self._others = self._others, others
        for place, holder in sorted(others.items()):
            if place not in before:
                LOG.warning("the jobs of namespace %s are left to %s", place, holder)
        for place in sorted(before.keys() - others.keys()):
            LOG.warning("the jobs of namespace %s are nobody else's any more", place)
            self._left(place)
