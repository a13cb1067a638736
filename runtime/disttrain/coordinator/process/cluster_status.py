"""Sends the coordinator's part of the status to the API server, from a thread of its own.

Training never waits for it, and does not care whether it succeeds.
"""

import http.client
import ssl
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import closing
from functools import partial
from http import HTTPStatus
from urllib.parse import quote, urlsplit

from disttrain.coordinator.status.cluster_status import JobObject, Json, Patches
from disttrain.job import spec
from disttrain.job.cluster_names import COORDINATOR_FIELD_MANAGER, PLURAL
from disttrain.launch.background import Background
from disttrain.launch.config import ClusterAccess
from disttrain.telemetry import logs

LOG = logs.get(__name__)

_ATTEMPT_SECONDS = 5.0
_LAST_SECONDS = 10.0
"""For the last patch, when the job or this process ends."""
_PAUSE_SECONDS = 0.5
"""Between the attempts at it."""


class StatusRefused(OSError):
    """The API server understood the patch and does not take it, now or later."""


class ClusterStatus:
    """`offer` belongs to the coordinator's thread."""

    def __init__(self, send: Callable[[bytes], None], patches: Patches) -> None:
        """`send` raises OSError; StatusRefused where another attempt is in vain."""
        self._send = send
        self._patches = patches
        self._background = Background("cluster-status")
        self._sent: tuple[Json, Future[str]] | None = None
        """What was sent last, and the complaint about it, until that is heard."""
        self._complaint = ""

    def offer(self, fields: Callable[[], Json], now: float) -> None:
        """Send what `fields` says, if it is time and news. Never waits."""
        self._hear()
        if self._sent is None and self._patches.due(now):
            self._submit(fields(), now)

    def close(self, fields: Json, now: float) -> None:
        """Send the last words, again if need be, and wait a moment for them."""
        self._hear()
        self._submit(fields, now, until=time.monotonic() + _LAST_SECONDS)
        if self._sent is not None:
            wait([self._sent[1]], _LAST_SECONDS)

    def _submit(self, fields: Json, now: float, until: float = 0.0) -> None:
        content = self._patches.take(fields, now)
        if content is not None:
            deliver = partial(self._deliver, content, until)
            self._sent = fields, self._background.submit(deliver)

    def _hear(self) -> None:
        if self._sent is None or not self._sent[1].done():
            return
        fields, sent = self._sent
        self._sent = None
        # Whatever went wrong, training goes on.
        error = sent.exception()
        complaint = sent.result() if error is None else repr(error)
        self._patches.answered(fields, is_taken=not complaint)
        if complaint and complaint != self._complaint:
            LOG.warning("the API server has not taken the status", reason=complaint)
        self._complaint = complaint

    def _deliver(self, content: bytes, until: float) -> str:
        """Send it; the complaint about the last attempt, empty if it was taken.

        `until`: attempts are made until then, as `time.monotonic` says; one in any case.
        """
        while True:
            try:
                self._send(content)
            except OSError as error:
                complaint = str(error) or type(error).__name__
                if isinstance(error, StatusRefused) or time.monotonic() >= until:
                    return complaint
            else:
                return ""
            time.sleep(_PAUSE_SECONDS)


class ApiServer:
    """The one request that the coordinator makes. Token and certificate are read each time."""

    def __init__(self, access: ClusterAccess, job: JobObject) -> None:
        self._access = access
        place = f"/apis/{spec.API_VERSION}/namespaces/{quote(job.namespace)}/{PLURAL}"
        options = f"fieldManager={COORDINATOR_FIELD_MANAGER}&force=true"
        self._path = f"{place}/{quote(job.name)}/status?{options}"

    def apply(self, patch: bytes) -> None:
        """Server-side apply of the status subresource. Raises OSError, and nothing else.

        StatusRefused where the fault is the patch's, its sender's or its job's.
        """
        try:
            code, words = self._answer(patch)
        except (http.client.HTTPException, ValueError) as error:
            # An answer that broke off, or a token that no header can hold.
            message = f"the request failed: {error!r}"
            raise OSError(message) from error
        if code < HTTPStatus.MULTIPLE_CHOICES:
            return
        refused = HTTPStatus.BAD_REQUEST <= code < HTTPStatus.INTERNAL_SERVER_ERROR
        later = code == HTTPStatus.TOO_MANY_REQUESTS
        raise (StatusRefused if refused and not later else OSError)(words)

    def _answer(self, patch: bytes) -> tuple[int, str]:
        token = self._access.token.read_text(errors="replace").strip()
        server = urlsplit(self._access.server)
        # No proxy: one in the environment is for the task, not for the cluster's own address.
        connection = http.client.HTTPSConnection(
            server.hostname or "",
            server.port,
            timeout=_ATTEMPT_SECONDS,
            context=ssl.create_default_context(cafile=str(self._access.authority)),
        )
        headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/apply-patch+yaml",
            "Accept": "application/json",
        }
        with closing(connection):
            connection.request("PATCH", server.path + self._path, patch, headers)
            answer = connection.getresponse()
            is_taken = answer.status < HTTPStatus.MULTIPLE_CHOICES
            words = (answer.read() if is_taken else answer.read(500)).decode(errors="replace")
            return answer.status, f"{answer.status} {answer.reason}: {words}"
