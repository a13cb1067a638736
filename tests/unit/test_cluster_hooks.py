"""Clusters of other people: what the environment says of them, and how they are asked."""

import base64
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from builders import pod_discovery
from cluster import Unavailable, asking, commands, ctr, hooks, provisioner, volumes
from cluster.hooks import Hooks

POD: dict[str, Any] = {
    "metadata": {"name": "digits-shard-0", "namespace": "research", "labels": {"a/b": "c"}},
    "spec": {"containers": [{"ports": [{"name": "metrics", "containerPort": 9100}]}]},
    "status": {"podIP": "10.0.0.7", "phase": "Running"},
}


def a_claim(uid: str = "1-2", **spec: Any) -> dict[str, Any]:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    metadata = {"namespace": "research", "name": "data", "uid": uid}
    return {"metadata": metadata, "spec": {"storageClassName": volumes.CLASS, **wanted, **spec}}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that would be run."""
    found: list[list[str]] = []
    monkeypatch.setattr(commands, "run", lambda *words, **_: found.append([*map(str, words)]))
    return found


def test_commands_of_the_environment_get_their_arguments(
    monkeypatch: pytest.MonkeyPatch, runs: list[list[str]]
) -> None:
    monkeypatch.setenv(hooks.LOAD, """sh -c 'kind load image-archive "$0"'""")
    monkeypatch.setenv(hooks.KILL, "sh kill.sh")
    given = hooks.given()
    given.load(Path("a.tar"), "name:1")
    given.kill("research", "digits-shard-0", "disttrain")
    assert runs == [
        ["sh", "-c", 'kind load image-archive "$0"', "a.tar", "name:1"],
        ["sh", "kill.sh", "research", "digits-shard-0", "disttrain"],
    ]


@pytest.mark.parametrize("missing", [hooks.LOAD, hooks.KILL])
def test_a_missing_command_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    for name in (hooks.LOAD, hooks.KILL):
        monkeypatch.setenv(name, "" if name == missing else "true")
    with pytest.raises(Unavailable, match=f"not set: {missing};"):
        hooks.given()


def test_our_own_commands_can_be_given_as_a_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, words in Hooks(hooks.OURS).variables().items():
        monkeypatch.setenv(name, words)
    assert hooks.given().variables() == Hooks(hooks.OURS).variables()


@pytest.mark.parametrize(
    ("claim", "waits"),
    [
        (a_claim(), True),
        (a_claim(volumeName="pvc-1-2"), False),
        (a_claim(storageClassName="nobody-has-this"), False),
        ({"metadata": {}, "spec": {}}, False),
        ({}, False),
    ],
    ids=["new", "bound", "another class", "no class", "no claim"],
)
def test_claims_of_our_class_without_a_volume_get_one(
    claim: dict[str, Any], *, waits: bool
) -> None:
    assert provisioner.is_waiting(claim) is waits


def test_a_later_claim_of_the_same_name_gets_another_volume() -> None:
    first, second = volumes.manifest(a_claim("1")), volumes.manifest(a_claim("2"))
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert first["spec"]["local"] != second["spec"]["local"]
    assert second["spec"]["claimRef"] == {"namespace": "research", "name": "data", "uid": "2"}


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({}, {"exec": {"command": "login"}}),
        ({}, {"client-certificate": "a.pem"}),
        ({"proxy-url": "http://proxy"}, {"token": "t"}),
        ({"server": "https://127.0.0.1:1/of/many"}, {"token": "t"}),
    ],
)
def test_what_only_kubectl_understands_is_left_to_it(
    tmp_path: Path, cluster: dict[str, str], user: dict[str, Any]
) -> None:
    authority = base64.b64encode(b"").decode()
    usual = {"server": "https://127.0.0.1:1", "certificate-authority-data": authority}
    content = {"clusters": [{"cluster": usual | cluster}], "users": [{"user": user}]}
    (tmp_path / "flat.json").write_text(json.dumps(content))
    (tmp_path / "other.yaml").write_text("clusters: []\n")
    assert asking.content(tmp_path / "flat.json", "/version") is None
    assert asking.content(tmp_path / "other.yaml", "/version") is None


def test_the_identity_in_an_archive_is_that_of_its_configuration(tmp_path: Path) -> None:
    image = [{"Config": "some.json", "RepoTags": ["name:1"], "Layers": []}]
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, content in (("some.json", b"{}"), ("manifest.json", json.dumps(image).encode())):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    expected = f"sha256:{hashlib.sha256(b'{}').hexdigest()}"
    assert ctr.configuration_in(tmp_path / "a.tar") == expected


def test_prometheus_finds_pods_by_way_of_the_api_server() -> None:
    (target,) = pod_discovery.targets([POD], "api.example:6443")
    assert target["targets"] == ["api.example:6443"]
    labels = target["labels"]
    assert labels["__scheme__"] == "https"
    place = "/api/v1/namespaces/research/pods/digits-shard-0:9100/proxy/metrics"
    assert labels["__metrics_path__"] == place
    assert labels["instance"] == "10.0.0.7:9100"
    assert labels["__meta_kubernetes_pod_label_a_b"] == "c"
