"""Makes the authority of a job and what it signs: the door to cryptography."""

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

from disttrain.job.credentials import Credentials
from disttrain.job.identity import Identity

LIFETIME_OF_A_JOB = timedelta(days=3650)
"""Longer than any job."""

_CURVE = ec.SECP256R1()
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of the curve: private keys are below it."""
_DERIVED_BYTES = 48
"""Sixteen more than a key has, so that no key is likelier than another by what is left over."""
_UNREADABLE = (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.InvalidVersion)
"""What cryptography raises of a request that is none, or is of a kind that it does not know."""
_SKEW = timedelta(days=1)
"""How far behind the clock of a node may be."""


class Request(NamedTuple):
    """What somebody who has no certificate yet asks with."""

    key: str
    """In PEM; nobody else ever gets it."""
    text: str
    """The signed request, in PEM."""


@dataclass(frozen=True, slots=True, repr=False)
class Authority:
    """Signs for one job, or for the operator's own endpoint."""

    certificate: str
    """In PEM."""
    _key: ec.EllipticCurvePrivateKey

    def issue(self, identity: Identity) -> Credentials:
        """A new key and its certificate, which lasts as long as the job may."""
        asked = new_request()
        signed = self.sign(asked.text, identity, LIFETIME_OF_A_JOB)
        return Credentials(certificate=signed, key=asked.key, authority=self.certificate)

    def sign(self, request: str, identity: Identity, lifetime: timedelta) -> str:
        """The certificate of who has made a request, in PEM; of the request only the key counts.

        Raises ValueError for one that is no request, or not signed by the key in it.
        """
        names = map(x509.UniformResourceIdentifier, identity.uris)
        return _pem(self._leaf(_key_of(request), str(identity)[:64], names, lifetime))

    def issue_server(self, host: str, lifetime: timedelta) -> Credentials:
        """What a server shows to clients that know it by a name or an address."""
        key = ec.generate_private_key(_CURVE)
        signed = self._leaf(key.public_key(), "DistTrain operator", [_host(host)], lifetime)
        return Credentials(
            certificate=_pem(signed), key=_private_pem(key), authority=self.certificate
        )

    def _leaf(
        self,
        key: ec.EllipticCurvePublicKey,
        subject: str,
        names: Iterable[x509.GeneralName],
        lifetime: timedelta,
    ) -> x509.Certificate:
        authority = x509.load_pem_x509_certificate(self.certificate.encode())
        return (
            _builder(_named(subject), authority.subject, key, lifetime)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def issue(identities: Mapping[str, Identity]) -> dict[str, Credentials]:
    """The credentials of processes, by name, of a new authority, whose key nobody keeps."""
    authority = new_authority()
    return {name: authority.issue(one) for name, one in identities.items()}


def new_authority() -> Authority:
    """One whose key lives only as long as what this returns."""
    return _authority(ec.generate_private_key(_CURVE), "DistTrain job")


def derived_authority(master: bytes, purpose: str) -> Authority:
    """The same key for the same master secret and purpose, and for another purpose another one.

    Its certificate has other dates each time, and checks what the key has ever signed.
    """
    info = f"disttrain.dev/authority/{purpose}".encode()
    expanded = HKDF(hashes.SHA256(), _DERIVED_BYTES, salt=None, info=info).derive(master)
    number = int.from_bytes(expanded, "big") % (_ORDER - 1) + 1
    return _authority(ec.derive_private_key(number, _CURVE), "DistTrain job")


def new_request() -> Request:
    key = ec.generate_private_key(_CURVE)
    # Who asks is known by other means: a request proves that its sender has the key.
    asked = x509.CertificateSigningRequestBuilder().subject_name(_named("DistTrain process"))
    signed = asked.sign(key, hashes.SHA256())
    return Request(_private_pem(key), signed.public_bytes(Encoding.PEM).decode())


class Validity(NamedTuple):
    """From when until when a certificate holds."""

    since: datetime
    until: datetime


def validity(certificate: str) -> Validity:
    """Raises ValueError for a text that is no certificate in PEM."""
    found = x509.load_pem_x509_certificate(certificate.encode())
    return Validity(found.not_valid_before_utc + _SKEW, found.not_valid_after_utc)


def is_issued_by(certificate: str, authority: str) -> bool:
    """Whether an authority's key has signed a certificate. Raises ValueError for other texts."""
    signer = x509.load_pem_x509_certificate(authority.encode())
    try:
        x509.load_pem_x509_certificate(certificate.encode()).verify_directly_issued_by(signer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def fingerprint(certificate: str) -> str:
    """Of the key in a certificate, in 64 characters; other certificates of the key have it, too.

    Raises ValueError for a text that is no certificate in PEM.
    """
    key = x509.load_pem_x509_certificate(certificate.encode()).public_key()
    content = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(content).hexdigest()


def _authority(key: ec.EllipticCurvePrivateKey, called: str) -> Authority:
    name = _named(called)
    certificate = (
        _builder(name, name, key.public_key(), LIFETIME_OF_A_JOB)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(_pem(certificate), key)


def _key_of(request: str) -> ec.EllipticCurvePublicKey:
    try:
        asked = x509.load_pem_x509_csr(request.encode())
        key = asked.public_key()
        is_signed = asked.is_signature_valid
    except _UNREADABLE as error:
        message = f"the request cannot be read: {error}"
        raise ValueError(message) from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != _CURVE.name:
        message = f"the request's key must be of the curve {_CURVE.name}"
        raise ValueError(message)
    if not is_signed:
        message = "the request is not signed by the key in it"
        raise ValueError(message)
    return key


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lifetime: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + lifetime)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def _private_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
