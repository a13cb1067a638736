"""TLS 1.3 with certificates on both sides, all of them signed by the job's own authority."""

import os
import ssl

from disttrain.job import identity
from disttrain.job.credentials import Credentials
from disttrain.job.transport import Encryption
from disttrain.transport.addresses import Address
from disttrain.transport.config import TransportConfig
from disttrain.transport.errors import ConnectionLost, InvalidCredentials
from disttrain.transport.header import Role
from disttrain.transport.stream import Stream

_ROLES = {role.name.lower(): role for role in Role}


def credentials_at(address: Address, config: TransportConfig) -> Credentials | None:
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


def server_context(credentials: Credentials) -> ssl.SSLContext:
    """Raises InvalidCredentials, whose message holds no key."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, credentials)
    # A session would let a peer in without its certificate.
    context.num_tickets = 0
    return context


def client_context(credentials: Credentials) -> ssl.SSLContext:
    """Raises InvalidCredentials, whose message holds no key."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, credentials)


def role_of(stream: Stream, config: TransportConfig) -> Role:
    """The role that the peer's certificate stands for. Raises ConnectionLost for another job's."""
    found = identity.of_certificate(stream.certificate)
    if found is None or found.job_uid != config.job_uid or found.role not in _ROLES:
        message = "the peer's certificate names no process of this job"
        raise ConnectionLost(message)
    return _ROLES[found.role]


def _context(protocol: int, credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Who the peer is stands in its certificate's URI; addresses change with pods.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cadata=credentials.authority)
        _load_chain(context, credentials)
    except (ssl.SSLError, TypeError, ValueError) as error:
        message = f"the process's certificate, key or authority cannot be used: {error}"
        raise InvalidCredentials(message) from None
    return context


def _load_chain(context: ssl.SSLContext, credentials: Credentials) -> None:
    """OpenSSL's function takes the name of a file; this one is in memory alone."""
    descriptor = os.memfd_create("disttrain-credentials", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(f"{credentials.certificate}\n{credentials.key}\n".encode())
        file.flush()
        # Without a password of ours OpenSSL would ask at the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
