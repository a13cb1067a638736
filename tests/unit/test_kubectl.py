"""Who got no answer from the API server asks again; who got one does not."""

from pathlib import Path

import pytest

from builders import helm
from cluster import binaries, kubectl
from cluster.errors import CommandFailed


def a_kubectl(monkeypatch: pytest.MonkeyPatch, folder: Path, first_words: str) -> kubectl.Kubectl:
    """Return one whose program says these words and fails, once, and succeeds from then on."""
    program = folder / "kubectl"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/asked\n'
        f'[ $(wc -l < {folder}/asked) -gt 1 ] || {{ echo "{first_words}" >&2; exit 1; }}\n'
        "echo done\n"
    )
    program.chmod(0o700)
    monkeypatch.setattr(binaries, "kubernetes", lambda _: [program])
    return kubectl.Kubectl(folder / "kubeconfig")


def test_a_handshake_that_ran_out_of_time_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = f"Unable to connect to the server: {kubectl.NOT_CONNECTED}"
    assert a_kubectl(monkeypatch, tmp_path, words).run("delete", "pod", "a") == "done\n"
    first, second = (tmp_path / "asked").read_text().splitlines()
    assert first == second
    assert first.endswith("delete pod a")


def test_an_answer_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refused = a_kubectl(monkeypatch, tmp_path, "Error from server (Forbidden): no")
    with pytest.raises(CommandFailed, match="Forbidden"):
        refused.run("delete", "pod", "a")
    assert len((tmp_path / "asked").read_text().splitlines()) == 1


def test_applying_is_tried_again_where_the_api_server_had_no_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = f"Error from server: Timeout: {kubectl.TIMED_OUT} - context deadline exceeded"
    a_kubectl(monkeypatch, tmp_path, words).apply({"kind": "ConfigMap"})
    assert len((tmp_path / "asked").read_text().splitlines()) == 2


def test_the_chart_is_installed_again_where_the_api_server_had_no_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = f"cannot patch the CRD: Timeout: {kubectl.TIMED_OUT} - context deadline exceeded"
    namespace = a_kubectl(monkeypatch, tmp_path, words)
    monkeypatch.setattr(binaries, "path", lambda _: tmp_path / "kubectl")
    helm.upgrade(namespace, "disttrain", {})
    first, second = (tmp_path / "asked").read_text().splitlines()
    assert "upgrade disttrain" in first
    assert "upgrade disttrain" in second
