"""The HTTPS port at which pods ask for certificates.

Everybody on the pod network may connect, so what a stranger can hold is bounded: some handshakes
and some connections, each for a few seconds, short requests, and a few questions to the API server.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from aiohttp import web

from disttrain.errors import DistTrainError
from disttrain.job import certificate_chain, pod_layout
from disttrain.job.credentials import Credentials
from disttrain.job.identity import Identity
from disttrain_operator import json_text
from disttrain_operator.cluster.client import Client
from disttrain_operator.observed.inventory import Inventory
from disttrain_operator.observed.records import JobKey
from disttrain_operator.policies import identities
from disttrain_operator.policies.identities import Application, Denied
from disttrain_operator.reconcile import events
from disttrain_operator.reconcile.events import EventText
from disttrain_operator.signing.authorities import Authorities
from disttrain_operator.telemetry import metrics

LOG = logging.getLogger(__name__)

MOST_CONNECTIONS: Final = 256
"""Open at once. One more ends the oldest: a pod that asks needs a few milliseconds."""
_MOST_HANDSHAKES = 64
"""At once; the others wait outside."""
HANDSHAKE_SECONDS = 2.0
_PAUSE_SECONDS = 0.2
_SILENCE_SECONDS = 5.0
"""A connection without a whole request for so long is closed."""
_CLOSING_SECONDS = 1.0
"""What comes after an answer is read for so long, and the end of TLS is waited for."""
_MOST_BYTES = 16 << 10
"""Of a request's body; its headers are bounded by aiohttp, at 8 KiB each."""
_MOST_REVIEWS = 16
"""Tokens that the API server is asked about at once; beyond that pods ask again."""
_MOST_TOLD = 1000
"""Pods of which an Event was made."""
_BACKLOG = 256


class Endpoint:
    """Answers pods, within one event loop."""

    def __init__(self, client: Client, inventory: Inventory, authorities: Authorities) -> None:
        self._client = client
        self._inventory = inventory
        self._authorities = authorities
        self._num_reviews = 0
        self._told: set[tuple[str, str]] = set()

    async def answer(self, token: str, content: bytes) -> str | Denied:
        """The certificate that a pod gets, in PEM."""
        asked = _application(content)
        if asked is None:
            return _bad("the body must be JSON with the texts job, instance and request")
        if not token:
            return Denied(HTTPStatus.UNAUTHORIZED, "NoToken", "there is no bearer token")
        if self._num_reviews >= _MOST_REVIEWS:
            return _later("Busy", "too many ask at once: ask again")
        self._num_reviews += 1
        try:
            review = await self._client.review_token(token, pod_layout.TOKEN_AUDIENCE)
        except DistTrainError as error:
            LOG.warning("a token cannot be checked: %s", error)
            return _later("NoReview", "the API server does not say whose the token is: ask again")
        finally:
            self._num_reviews -= 1
        pod = identities.pod_of(review, pod_layout.TOKEN_AUDIENCE)
        if isinstance(pod, Denied):
            return pod
        key = JobKey(pod.namespace, asked.job)
        found = identities.identity_of(pod, asked, self._inventory.at(key))
        answer = self._signed(asked, found) if isinstance(found, Identity) else found
        if isinstance(answer, Denied):
            await self._tell(key, pod.name, answer)
        return answer

    def _signed(self, asked: Application, identity: Identity) -> str | Denied:
        try:
            certificate = self._authorities.sign(asked.request, identity)
        except ValueError as error:
            return _bad(str(error))
        metrics.CERTIFICATES_SIGNED.labels(identity.role).inc()
        LOG.debug("signed for %s of job %s", identity, identity.job_uid)
        return certificate

    async def _tell(self, key: JobKey, pod: str, denied: Denied) -> None:
        """An Event, once, of a pod that asks for what it does not get however often it asks."""
        job = self._inventory.at(key).job
        is_known = (pod, denied.reason) in self._told or len(self._told) >= _MOST_TOLD
        if job is None or is_known or denied.status is HTTPStatus.SERVICE_UNAVAILABLE:
            return
        self._told.add((pod, denied.reason))
        words = f"{pod} got no certificate: {denied.message}"
        text = EventText("CertificateRefused", words, good=False, about=f"Pod {pod}")
        await events.record_action(self._client, job, text, datetime.now(UTC))

    async def handle(self, request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(_SILENCE_SECONDS):
                content = await request.read()
        except TimeoutError:
            denied: str | Denied = _bad("the request did not come in time")
        else:
            denied = await self.answer(_token(request), content)
        if isinstance(denied, str):
            return web.json_response({"certificate": denied})
        metrics.CERTIFICATES_REFUSED.labels(denied.reason).inc()
        return web.Response(status=denied.status, text=f"{denied.message}\n")


@asynccontextmanager
async def serving(
    endpoint: Endpoint, listener: socket.socket, shown: Credentials
) -> AsyncIterator[None]:
    """Answer at a socket that is bound; it is closed at the end."""
    application = web.Application(client_max_size=_MOST_BYTES)
    application.add_routes([web.post(pod_layout.SIGNING_PATH, endpoint.handle)])
    runner = web.AppRunner(
        application,
        access_log=None,
        keepalive_timeout=_SILENCE_SECONDS,
        lingering_time=_CLOSING_SECONDS,
        # Unpacking what is passed over would take seconds of the thread that looks after all jobs.
        auto_decompress=False,
    )
    await runner.setup()
    listener.listen(_BACKLOG)
    accepting = asyncio.create_task(_accept(listener, runner, _context(shown)))
    try:
        yield
    finally:
        accepting.cancel()
        with suppress(asyncio.CancelledError):
            await accepting
        listener.close()
        await runner.cleanup()


def bound(port: int) -> socket.socket:
    """A socket for `serving`, at a port of all addresses; 0: any free one."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    made = socket.create_server(("", port), family=family, dualstack_ipv6=both)
    made.settimeout(0)
    return made


async def _accept(listener: socket.socket, runner: web.AppRunner, context: ssl.SSLContext) -> None:
    """Take connections as long as few are in their handshake."""
    loop, room = asyncio.get_running_loop(), asyncio.Semaphore(_MOST_HANDSHAKES)
    async with asyncio.TaskGroup() as handshakes:
        while True:
            await room.acquire()
            try:
                connected, _ = await loop.sock_accept(listener)
            except OSError as error:
                # The client is gone already, or there are no descriptors left.
                LOG.warning("a connection could not be taken: %s", error)
                room.release()
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            admitted = handshakes.create_task(_admit(connected, runner, context))
            admitted.add_done_callback(lambda _: room.release())


async def _admit(connected: socket.socket, runner: web.AppRunner, context: ssl.SSLContext) -> None:
    server = runner.server
    if server is None:
        message = "a runner has its server only once it is set up"
        raise AssertionError(message)
    try:
        await asyncio.get_running_loop().connect_accepted_socket(
            server,
            connected,
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=_CLOSING_SECONDS,
        )
    except (OSError, TimeoutError):
        connected.close()
    except asyncio.CancelledError:
        connected.close()
        raise
    for oldest in server.connections[:-MOST_CONNECTIONS]:
        # Without the end of TLS, for which a stranger lets one wait.
        if oldest.transport is not None:
            oldest.transport.abort()


def _context(shown: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    certificate_chain.load(context, shown.certificate, shown.key)
    return context


def _token(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    # What is no ASCII is no token, and could not be asked about.
    return token.strip() if scheme.lower() == "bearer" and token.isascii() else ""


def _application(content: bytes) -> Application | None:
    try:
        return identities.application(json_text.read(content))
    except ValueError:
        return None


def _bad(message: str) -> Denied:
    return Denied(HTTPStatus.BAD_REQUEST, "BadRequest", message)


def _later(reason: str, message: str) -> Denied:
    return Denied(HTTPStatus.SERVICE_UNAVAILABLE, reason, message)
