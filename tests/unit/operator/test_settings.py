from datetime import timedelta
from typing import Any

import pytest

from disttrain_operator import settings
from disttrain_operator.errors import InvalidSettings
from disttrain_operator.manifests.config import DefaultVolume, PodSecurity


def test_what_is_not_said_has_its_default() -> None:
    assert settings.read({}) == settings.Settings()


def test_what_an_administrator_says_is_taken() -> None:
    found = settings.read(
        {
            "DISTTRAIN_NAMESPACES": "a, b,",
            "DISTTRAIN_METRICS_PORT": "0",
            "DISTTRAIN_RUNTIME_IMAGE": "image:1",
            "DISTTRAIN_POD_SECURITY": "baseline",
            "DISTTRAIN_ALLOWED_SERVICE_ACCOUNTS": "trainer,team-*",
            "DISTTRAIN_CHECKPOINT_SIZE": "1Gi",
            "DISTTRAIN_FORCE_DELETE_LOST_PODS": "false",
        }
    )

    assert (found.namespaces, found.metrics_port) == (("a", "b"), 0)
    assert found.manifests.image == "image:1"
    assert found.manifests.pod_security is PodSecurity.BASELINE
    assert found.manifests.allowed_service_accounts == ("trainer", "team-*")
    assert not found.manifests.removes_lost_pods
    assert found.manifests.default_volume == DefaultVolume(size="1Gi")


def test_an_empty_size_means_no_volume_of_its_own() -> None:
    assert settings.read({"DISTTRAIN_CHECKPOINT_SIZE": ""}).manifests.default_volume is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DISTTRAIN_METRICS_PORT", "65536"),
        ("DISTTRAIN_METRICS_PORT", "-1"),
        ("DISTTRAIN_METRICS_PORT", "http"),
        ("DISTTRAIN_POD_SECURITY", "everything"),
        ("DISTTRAIN_MANAGED_BY", "nobody"),
        ("DISTTRAIN_FORCE_DELETE_LOST_PODS", "sometimes"),
        ("DISTTRAIN_POD_DEFAULTS", "{not json"),
        ("DISTTRAIN_POD_DEFAULTS", '["list"]'),
        ("DISTTRAIN_POD_DEFAULTS", '{"spec": {"volumes": 7}}'),
        ("DISTTRAIN_POD_SECURITY_CONTEXT", "7"),
        ("DISTTRAIN_METRICS_FROM", "{}"),
        ("DISTTRAIN_CHECKPOINT_WHEN_DELETED", "Keep"),
        ("DISTTRAIN_SIGNING_PORT", "https"),
        ("DISTTRAIN_CERTIFICATE_SECONDS", "59"),
        ("DISTTRAIN_CERTIFICATE_SECONDS", "604801"),
        ("DISTTRAIN_CERTIFICATE_SECONDS", "a day"),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidSettings, match=name):
        settings.read({name: value})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("DISTTRAIN_POD_SECURITY", "restricted, baseline, privileged"),
        ("DISTTRAIN_FORCE_DELETE_LOST_PODS", "true, false"),
        ("DISTTRAIN_CHECKPOINT_WHEN_DELETED", "Retain, Delete"),
    ],
)
def test_what_is_no_known_word_is_refused_with_those_that_are(name: str, words: str) -> None:
    with pytest.raises(InvalidSettings, match=f"must be one of {words}, got 'Keep'"):
        settings.read({name: "Keep"})


def test_certificates_are_signed_for_a_day_at_the_port_that_pods_are_told() -> None:
    default = settings.read({}).signing
    assert (default.port, default.host, default.lifetime) == (8443, "", timedelta(days=1))
    assert (default.namespace, default.secret) == ("default", "disttrain-operator-authority")
    assert settings.read({"DISTTRAIN_NAMESPACES": "a,b"}).signing.namespace == "a"
    found = settings.read(
        {
            "DISTTRAIN_NAMESPACES": "a",
            "POD_NAMESPACE": "system",
            "DISTTRAIN_SIGNING_HOST": "operator.system.svc",
            "DISTTRAIN_AUTHORITY_SECRET": "own",
            "DISTTRAIN_CERTIFICATE_SECONDS": "60",
        }
    ).signing
    assert (found.namespace, found.host, found.secret) == ("system", "operator.system.svc", "own")
    assert found.lifetime == timedelta(minutes=1)


def test_the_largest_port_is_one() -> None:
    assert settings.read({"DISTTRAIN_METRICS_PORT": "65535"}).metrics_port == 65535


def test_a_pod_is_known_by_its_name_and_another_process_by_its_machine() -> None:
    pod = settings.read({"POD_NAME": "operator-0", "POD_NAMESPACE": "system"})

    assert pod.identity == "system/operator-0"
    assert settings.read({}).identity.startswith("process on ")
