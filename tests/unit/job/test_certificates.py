"""What a job's authority issues, and the file in which a process finds it."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from disttrain.job import certificates, credentials
from disttrain.job.identity import Identity, parse
from disttrain.job.names import LAUNCHER, Role

ISSUED = certificates.issue("uid", [*Role, LAUNCHER])


def loaded(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


@pytest.mark.parametrize("role", [*Role, LAUNCHER])
def test_a_certificate_names_its_job_and_role_and_signs_nothing(role: str) -> None:
    certificate = loaded(ISSUED[role].certificate)

    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [f"disttrain://uid/{role}"]
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


def test_no_two_roles_and_no_two_jobs_share_a_key_or_an_authority() -> None:
    others = certificates.issue("uid")
    keys = {one.key for one in (*ISSUED.values(), *others.values())}
    assert len(keys) == len(ISSUED) + len(others)
    assert {one.authority for one in ISSUED.values()}.isdisjoint(
        one.authority for one in others.values()
    )
    assert len({one.authority for one in ISSUED.values()}) == 1


@pytest.mark.parametrize("uri", ["", "disttrain://", "disttrain://uid", "disttrain:///shard", "x"])
def test_what_names_no_process_is_none(uri: str) -> None:
    assert parse(uri) is None
    assert parse(Identity("uid", "shard").uri) == Identity("uid", "shard")


def test_credentials_survive_their_file() -> None:
    content = credentials.encode(ISSUED["shard"])
    assert credentials.parse(content) == ISSUED["shard"]
    assert ISSUED["shard"].key[40:80] not in repr(ISSUED["shard"])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"certificate": "c", "key": "short secret"}',
        b'{"certificate": 1, "key": "short secret", "authority": "a"}',
        b'{"certificate": "c", "key": "short secret", "authority": "a", "more": "short secret"}',
    ],
)
def test_a_file_without_credentials_is_refused_and_no_secret_is_shown(content: bytes) -> None:
    with pytest.raises(ValueError, match="the credentials file is not valid at") as raised:
        credentials.parse(content)
    assert "short" not in str(raised.value)
