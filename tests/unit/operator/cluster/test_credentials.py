from pathlib import Path

import pytest
import yaml

from disttrain_operator.cluster import credentials
from disttrain_operator.errors import InvalidSettings


def kubeconfig(folder: Path, **user: str) -> Path:
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api.example/"}}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_token_in_a_file_beside_the_kubeconfig_is_read_at_each_use(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    found = credentials.of_kubeconfig(kubeconfig(tmp_path, tokenFile="token"))
    assert (found.server, found.read_token()) == ("https://api.example", "first")

    file.write_text("second\n")

    assert found.read_token() == "second"


def test_a_kubeconfig_without_a_context_is_refused_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("contexts: []")

    with pytest.raises(InvalidSettings, match=f"{path}.*set KUBECONFIG"):
        credentials.of_kubeconfig(path)


@pytest.mark.parametrize(
    ("host", "server"),
    [("10.0.0.1", "https://10.0.0.1:6443"), ("fd00::1", "https://[fd00::1]:6443")],
)
def test_in_a_pod_the_service_is_asked_with_the_pods_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, server: str
) -> None:
    (tmp_path / "ca.crt").write_text("authority")
    (tmp_path / "token").write_text("token")
    monkeypatch.setattr(credentials, "_ACCOUNT", tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")

    found = credentials.find()

    assert (found.server, found.authority) == (server, b"authority")
    assert found.read_token() == "token"
