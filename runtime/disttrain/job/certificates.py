"""Makes the authority of a job and the credentials of its processes: the door to cryptography."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from disttrain.job.credentials import Credentials
from disttrain.job.identity import Identity
from disttrain.job.names import Role

_SKEW = timedelta(days=1)
"""How far behind the clock of a node may be."""
_VALID = timedelta(days=3650)
"""Longer than any job: whoever has a certificate keeps it for the job's life."""


def issue(job_uid: str, roles: Iterable[str] = tuple(Role)) -> dict[str, Credentials]:
    """The credentials of each role, signed by a new authority, whose key nobody keeps."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "DistTrain job")])
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    authority = (
        _builder(name, name, key.public_key())
        .add_extension(constraints, critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return {role: _leaf(Identity(job_uid, str(role)), authority, key) for role in roles}


def _leaf(
    identity: Identity, authority: x509.Certificate, signing: ec.EllipticCurvePrivateKey
) -> Credentials:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity.role)])
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity.uri)])
    certificate = (
        _builder(name, authority.subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(names, critical=False)
        .sign(signing, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Credentials(
        certificate=_pem(certificate), key=private.decode(), authority=_pem(authority)
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _VALID)
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
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
