"""How a process in a pod gets its certificate from the operator, and another one in time.

It shows the token of its pod, which the kubelet renews, and a request that proves that it has the
key. The key never leaves this process. While the operator is away it asks again, and works on with
the certificate that it has.
"""

import http.client
import json
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from disttrain.errors import DistTrainError
from disttrain.job import certificates, pod_layout
from disttrain.job.certificates import Validity
from disttrain.job.credentials import Credentials, RenewedCredentials, Trust
from disttrain.telemetry import logs

LOG = logs.get(__name__)

RENEWED_AFTER = 2 / 3
"""Of a certificate's lifetime: for a third of it the operator may be away."""
_SPREAD = 0.1
"""Pods that started together do not all ask together again."""
_ANSWER_SECONDS = 15.0
_MOST_ANSWERED_BYTES = 64 << 10
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 30.0

Pause = Callable[[float], None]


class NotSigned(DistTrainError):
    """There is no certificate for now; the message says why. Ask again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Applicant:
    """Who asks for certificates."""

    trust: Trust
    job: str
    """The job's name, by which the operator finds its pod."""
    instance: str
    """What the certificate shall say; begins with the pod's uid."""
    token: Path
    """Where the kubelet keeps it."""
    secret: str
    """Name of the Secret with `trust`, for messages."""
    chance: random.Random = field(default_factory=random.Random)

    def ask(self) -> Credentials:
        """A new key with its certificate. Raises NotSigned."""
        request = certificates.new_request()
        body = {"job": self.job, "instance": self.instance, "request": request.text}
        certificate = self._certificate(self._answer(json.dumps(body).encode()))
        if not certificates.is_issued_by(certificate, self.trust.authority):
            message = (
                "the operator signs by another authority than this job's: its own Secret was "
                f"replaced; {self._remedy}"
            )
            raise NotSigned(message)
        return Credentials(certificate=certificate, key=request.key, authority=self.trust.authority)

    def ask_until_signed(self, pause: Pause = time.sleep) -> Credentials:
        """The same, with pauses between the attempts, for as long as it takes."""
        for seconds in pauses(self.chance):
            try:
                return self.ask()
            except NotSigned as error:
                LOG.warning("no certificate yet", signer=self.trust.signer, reason=error)
                pause(seconds)
        raise AssertionError

    @property
    def _remedy(self) -> str:
        return (
            f"delete Secret {self.secret} in the job's namespace, and this pod if nothing begins "
            "anew within a minute; all processes go on from what they saved"
        )

    def _answer(self, body: bytes) -> bytes:
        host, _, port = self.trust.signer.rpartition(":")
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.load_verify_locations(cadata=self.trust.signer_authority)
            token = self.token.read_text(encoding="ascii").strip()
            connection = http.client.HTTPSConnection(
                host.strip("[]"), int(port), timeout=_ANSWER_SECONDS, context=context
            )
            try:
                headers = {
                    "Authorization": f"Bearer {token}",
                    "Content-Type": "application/json",
                }
                connection.request("POST", pod_layout.SIGNING_PATH, body, headers)
                answer = connection.getresponse()
                content = answer.read(_MOST_ANSWERED_BYTES)
            finally:
                connection.close()
        except ssl.SSLCertVerificationError as error:
            message = (
                f"the operator at {self.trust.signer} is not the one that this job believes: its "
                f"own Secret was replaced, or somebody else answers there ({error}); if it was, "
                f"{self._remedy}"
            )
            raise NotSigned(message) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            message = f"no answer ({type(error).__name__}: {error})"
            raise NotSigned(message) from error
        if answer.status != http.client.OK:
            words = content[:500].decode(errors="replace").strip()
            message = f"refused ({answer.status}): {words}"
            raise NotSigned(message)
        return content

    def _certificate(self, content: bytes) -> str:
        try:
            certificate = str(json.loads(content)["certificate"])
            certificates.validity(certificate)
        except (ValueError, LookupError, TypeError) as error:
            message = f"the answer holds no certificate: {error}"
            raise NotSigned(message) from error
        return certificate


def pauses(chance: random.Random) -> Iterator[float]:
    """Seconds between attempts, without end: they double, and differ between pods."""
    longest = _FIRST_PAUSE
    while True:
        yield longest * chance.uniform(0.5, 1.0)
        longest = min(2 * longest, _LONGEST_PAUSE)


def due_in(validity: Validity, chance: random.Random) -> float:
    """Seconds after its beginning at which a certificate is to be renewed.

    Measured from when it came: the clock of this machine may be another than the operator's.
    """
    lifetime = (validity.until - validity.since).total_seconds()
    return lifetime * RENEWED_AFTER * chance.uniform(1 - _SPREAD, 1.0)


def keep_renewed(
    first: Credentials, applicant: Applicant, pause: Pause = time.sleep
) -> RenewedCredentials:
    """The credentials, which a thread of this process renews from now on."""
    kept = RenewedCredentials(first)

    def renew() -> None:
        while True:
            pause(due_in(certificates.validity(kept.current.certificate), applicant.chance))
            kept.current = applicant.ask_until_signed(pause)
            until = certificates.validity(kept.current.certificate).until
            LOG.info("certificate renewed", until=until.isoformat(timespec="seconds"))

    threading.Thread(target=renew, name="credentials", daemon=True).start()
    return kept
