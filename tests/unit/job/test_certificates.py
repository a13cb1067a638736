"""What authorities issue, and the files in which a process finds it."""

import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from builders import forging, issuing
from disttrain.job import certificates, credentials
from disttrain.job.credentials import Trust
from disttrain.job.identity import Identity
from disttrain.job.names import LAUNCHER, Role

ISSUED = issuing.by_role("uid", [*Role, LAUNCHER])
WHO = Identity("uid", "replica", 3, 1, "pod.1", "a-pod")
DAY = timedelta(hours=24)
DERIVED = 108533029250873306158095465171524422230275184844248293687413668383225402705938


def loaded(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


def uris(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.UniformResourceIdentifier)


@pytest.mark.parametrize("role", [*Role, LAUNCHER])
def test_a_certificate_names_its_job_and_role_and_signs_nothing(role: str) -> None:
    certificate = loaded(ISSUED[role].certificate)

    assert uris(certificate) == list(Identity("uid", role).uris)
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert (usage.digital_signature, usage.key_cert_sign) == (True, False)
    certificate.verify_directly_issued_by(loaded(ISSUED[role].authority))
    now = datetime.now(UTC)
    assert certificate.not_valid_before_utc < now - timedelta(hours=23)
    assert certificate.not_valid_after_utc > now + timedelta(days=3000)


def test_the_authority_signs_processes_alone() -> None:
    authority = loaded(ISSUED["shard"].authority)
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)


def test_no_two_processes_and_no_two_jobs_share_a_key_or_an_authority() -> None:
    others = issuing.by_role("uid")
    keys = {one.key for one in (*ISSUED.values(), *others.values())}
    assert len(keys) == len(ISSUED) + len(others)
    assert {one.authority for one in ISSUED.values()}.isdisjoint(
        one.authority for one in others.values()
    )
    assert len({one.authority for one in ISSUED.values()}) == 1


def test_who_asks_gets_the_name_that_the_signer_gives_and_keeps_the_key() -> None:
    authority, asked = certificates.new_authority(), certificates.new_request()
    signed = authority.sign(asked.text, WHO, DAY)

    assert uris(loaded(signed)) == list(WHO.uris)
    assert "PRIVATE" not in asked.text
    assert certificates.is_issued_by(signed, authority.certificate)
    assert not certificates.is_issued_by(signed, certificates.new_authority().certificate)
    since, until = certificates.validity(signed)
    assert until - since == DAY
    assert abs(datetime.now(UTC) - since) < timedelta(minutes=1)


def a_request(key: Any, **builder: Any) -> str:
    named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody")])
    made = x509.CertificateSigningRequestBuilder(**builder).subject_name(named)
    return made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def test_what_a_request_says_beside_its_key_counts_for_nothing() -> None:
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier("disttrain://uid/shard")])
    wish = x509.Extension(names.oid, critical=False, value=names)
    ca = x509.BasicConstraints(ca=True, path_length=3)
    power = x509.Extension(ca.oid, critical=True, value=ca)
    text = a_request(ec.generate_private_key(ec.SECP256R1()), extensions=[wish, power])
    signed = loaded(certificates.new_authority().sign(text, WHO, DAY))
    assert uris(signed) == list(WHO.uris)
    assert not signed.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


_REQUEST = "CERTIFICATE REQUEST"
_OF_A_CURVE = bytes.fromhex("06072a8648ce3d0201")
"""The kind of key."""
_P256 = bytes.fromhex("06082a8648ce3d030107")
_VERSION = bytes.fromhex("020100")


def changed(old: bytes, new: bytes) -> str:
    """A request of which some bytes are others."""
    der = x509.load_pem_x509_csr(certificates.new_request().text.encode()).public_bytes(
        Encoding.DER
    )
    assert der.count(old) == 1
    return ssl.DER_cert_to_PEM_cert(der.replace(old, new)).replace("CERTIFICATE", _REQUEST)


@pytest.mark.parametrize(
    "request_text",
    [
        "",
        "no PEM",
        "é",
        ISSUED["shard"].certificate,
        ISSUED["shard"].key,
        a_request(rsa.generate_private_key(65537, 2048)),
        a_request(ec.generate_private_key(ec.SECP384R1())),
        changed(_OF_A_CURVE, _OF_A_CURVE[:-1] + b"\x7f"),
        changed(_P256, _P256[:-1] + b"\x7f"),
        changed(_VERSION, b"\x02\x01\x05"),
        forging.request(certificates.new_request().text),
    ],
    ids=[
        *("empty", "no PEM", "no ASCII", "certificate", "key", "RSA", "another curve"),
        *("unknown key", "unknown curve", "unknown version", "forged"),
    ],
)
def test_what_is_no_good_request_is_not_signed(request_text: str) -> None:
    with pytest.raises(ValueError, match="the request"):
        certificates.new_authority().sign(request_text, WHO, DAY)


def test_what_another_key_has_signed_is_told_from_what_is_else_the_same() -> None:
    authority, asked = certificates.new_authority(), certificates.new_request()
    with pytest.raises(ValueError, match="not signed by the key in it"):
        authority.sign(forging.request(asked.text), WHO, DAY)

    signed = authority.sign(asked.text, WHO, DAY)
    forged = forging.certificate(signed)
    assert uris(loaded(forged)) == list(WHO.uris)
    assert loaded(forged).issuer == loaded(authority.certificate).subject
    assert not certificates.is_issued_by(forged, authority.certificate)


def test_derived_authorities_are_the_same_each_time_and_of_no_other_job() -> None:
    master, asked = bytes(range(32)), certificates.new_request()
    before, after, other = (
        certificates.derived_authority(master, purpose) for purpose in ("job/1", "job/1", "job/2")
    )
    stranger = certificates.derived_authority(bytes(32), "job/1")

    signed = after.sign(asked.text, WHO, DAY)
    # The Secret of a job holds the certificate of long ago.
    assert certificates.is_issued_by(signed, before.certificate)
    assert not certificates.is_issued_by(signed, other.certificate)
    assert not certificates.is_issued_by(signed, stranger.certificate)


def test_an_authority_is_known_by_its_key_whatever_certificate_it_has() -> None:
    master = bytes(range(32))
    before, after, other = (
        certificates.fingerprint(certificates.derived_authority(master, purpose).certificate)
        for purpose in ("job/1", "job/1", "job/2")
    )
    assert before == after != other
    assert len(before) == 64
    with pytest.raises(ValueError, match="PEM"):
        certificates.fingerprint("no certificate")


def test_a_derived_key_is_what_it_was_in_every_version() -> None:
    """Jobs outlive operators: their pods believe this key alone."""
    found = certificates.derived_authority(bytes(range(32)), "job/1").certificate
    key = loaded(found).public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.public_numbers().x == DERIVED


@pytest.mark.parametrize(("host", "kind"), [("a.b.svc", x509.DNSName), ("::1", x509.IPAddress)])
def test_a_server_is_known_by_its_host(host: str, kind: type) -> None:
    shown = certificates.new_authority().issue_server(host, DAY)
    names = loaded(shown.certificate).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert [str(each) for each in names.value.get_values_for_type(kind)] == [host]
    assert certificates.is_issued_by(shown.certificate, shown.authority)


def test_credentials_survive_their_file() -> None:
    content = credentials.encode(ISSUED["shard"])
    assert credentials.parse(content) == ISSUED["shard"]
    assert ISSUED["shard"].key[40:80] not in repr(ISSUED["shard"])


def test_so_does_of_whom_a_pod_gets_them() -> None:
    trust = Trust(authority="a", signer="host:1", signer_authority="b")
    content = credentials.encode(trust)
    assert credentials.parse(content) == trust
    with pytest.raises(ValueError, match="authority"):
        credentials.parse(credentials.encode(replace(trust)).replace(b'"authority"', b'"more"'))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"certificate": "c", "key": "short secret"}',
        b'{"certificate": 1, "key": "short secret", "authority": "a"}',
        b'{"certificate": "c", "key": "short secret", "authority": "a", "more": "short secret"}',
        b'{"signer": "short secret"}',
    ],
)
def test_a_file_without_credentials_is_refused_and_no_secret_is_shown(content: bytes) -> None:
    with pytest.raises(ValueError, match="the credentials file is not valid at") as raised:
        credentials.parse(content)
    assert "short" not in str(raised.value)
