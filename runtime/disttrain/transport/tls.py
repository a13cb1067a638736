"""TLS 1.3 with certificates on both sides, all of them signed by the job's own authority."""

import ssl
from collections.abc import Callable

from disttrain.job import certificate_chain, identity
from disttrain.job.credentials import Credentials, RenewedCredentials
from disttrain.job.identity import Identity
from disttrain.job.transport import Encryption
from disttrain.transport.addresses import Address
from disttrain.transport.config import TransportConfig
from disttrain.transport.errors import ConnectionLost, InvalidCredentials
from disttrain.transport.header import Role
from disttrain.transport.stream import Stream

_ROLES = {role.name.lower(): role for role in Role}


def credentials_at(
    address: Address, config: TransportConfig
) -> Credentials | RenewedCredentials | None:
    """What a process shows at an address; None where nothing is encrypted.

    Raises InvalidCredentials where it has none to show: they are never left out for want of a file.
    """
    if address.path or config.encryption is Encryption.NONE:
        return None
    if config.credentials is None:
        message = (
            f"there are no credentials for {address.text}: with encryption tls nothing is sent "
            "over TCP without them; spec.transport.encryption none asks for that"
        )
        raise InvalidCredentials(message)
    return config.credentials


class Contexts:
    """The TLS context of new connections: another one whenever the credentials were renewed."""

    def __init__(
        self,
        make: Callable[[Credentials], ssl.SSLContext],
        credentials: Credentials | RenewedCredentials,
    ) -> None:
        """Raises InvalidCredentials."""
        self._make = make
        self._credentials = credentials
        self._made_from = credentials.current
        self._made = make(self._made_from)

    @property
    def current(self) -> ssl.SSLContext:
        latest = self._credentials.current
        if latest is not self._made_from:
            self._made, self._made_from = self._make(latest), latest
        return self._made


def server_context(credentials: Credentials) -> ssl.SSLContext:
    """Raises InvalidCredentials, whose message holds no key."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, credentials)
    # A session would let a peer in without its certificate.
    context.num_tickets = 0
    return context


def client_context(credentials: Credentials) -> ssl.SSLContext:
    """Raises InvalidCredentials, whose message holds no key."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, credentials)


def role_of(found: Identity) -> Role:
    return _ROLES[found.role]


def identity_of(stream: Stream, config: TransportConfig) -> Identity:
    """Who the peer is by its certificate. Raises ConnectionLost for another job's."""
    found = identity.of_certificate(stream.certificate)
    if found is None or found.job_uid != config.job_uid or found.role not in _ROLES:
        message = "the peer's certificate names no process of this job"
        raise ConnectionLost(message)
    return found


def _context(protocol: int, credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Who the peer is stands in its certificate's URI; addresses change with pods.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cadata=credentials.authority)
        certificate_chain.load(context, credentials.certificate, credentials.key)
    except (ssl.SSLError, TypeError, ValueError) as error:
        message = f"the process's certificate, key or authority cannot be used: {error}"
        raise InvalidCredentials(message) from None
    return context
