"""The kubeconfig files by which components and people reach the API server."""

import base64
import json
from pathlib import Path

from cluster import certificates, layout

ADMINISTRATORS = "system:masters"


def make(name: str, user: str, group: str = ADMINISTRATORS) -> Path:
    """Make a client certificate and write the kubeconfig that uses it."""
    pair = certificates.make_client(user, group)
    path = layout.kubeconfig(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    # JSON is YAML, and needs no library to be written right.
    path.write_text(json.dumps(_content(user, pair), indent=2))
    return path


def _content(user: str, pair: certificates.Pair) -> dict[str, object]:
    authority = _embedded(certificates.AUTHORITY.certificate)
    server = {"server": layout.API_URL, "certificate-authority-data": authority}
    client = {
        "client-certificate-data": _embedded(pair.certificate),
        "client-key-data": _embedded(pair.key),
    }
    context = {"cluster": layout.NAME, "user": user}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": layout.NAME, "cluster": server}],
        "users": [{"name": user, "user": client}],
        "contexts": [{"name": layout.NAME, "context": context}],
        "current-context": layout.NAME,
    }


def _embedded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
