"""Reads objects from the API server by itself: a look by kubectl costs a sixth of a core's second.

Tests that wait look many times a second, on the cores that those use whom they wait for. Only for
kubeconfigs that hold a certificate or a token, as `kubeconfigs` writes them, and the kinds that are
looked at most; kubectl does the rest, and says what is wrong.
"""

import base64
import http.client
import json
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

SECONDS: Final = 30.0
_JOBS: Final = "apis/disttrain.dev/v1alpha1", "disttrainjobs"
_PODS: Final = "api/v1", "pods"
_PLACES: Final = {
    "disttrainjob": _JOBS,
    "pod": _PODS,
    "pods": _PODS,
    "events": ("api/v1", "events"),
}
"""The group and the resource of a kind as tests call it."""

_SPECIAL: Final = {"proxy-url", "tls-server-name", "insecure-skip-tls-verify"}
"""Ways to a server that kubectl alone goes."""

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Server:
    """Where it is, and how it knows us."""

    host: str
    port: int
    trust: ssl.SSLContext
    headers: dict[str, str] = field(default_factory=dict)


def get(kubeconfig: Path, namespace: str, kind: str, name: str) -> Object | None:
    """Return an object; None for whatever kubectl has to say a word about."""
    found = _ask(kubeconfig, namespace, kind, f"/{quote(name)}")
    return None if found is None else _shown(found)


def items(kubeconfig: Path, namespace: str, kind: str, selector: str) -> list[Object] | None:
    """Return the objects that a label selector picks; None for what kubectl is needed for."""
    found = _ask(kubeconfig, namespace, kind, f"?labelSelector={quote(selector)}")
    if found is None:
        return None
    of_each = {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
    return [{**of_each, **_shown(each)} for each in found["items"]]


def _shown(found: Object) -> Object:
    """The object as kubectl shows it: without who wrote what."""
    found["metadata"].pop("managedFields", None)
    return found


def content(kubeconfig: Path, path: str) -> bytes | None:
    """Return what the API server answers, empty unless it is good; None where kubectl must ask."""
    server = _server(kubeconfig.read_text())
    if server is None:
        return None
    try:
        with _opened(server, path) as answer:
            return answer.read() if answer.status == http.HTTPStatus.OK else b""
    except (OSError, http.client.HTTPException):
        return b""


def _ask(kubeconfig: Path, namespace: str, kind: str, rest: str) -> Object | None:
    if kind not in _PLACES:
        return None
    group, resource = _PLACES[kind]
    found = content(kubeconfig, f"/{group}/namespaces/{namespace}/{resource}{rest}")
    try:
        return json.loads(found) if found else None
    except ValueError:
        return None


@contextmanager
def _opened(server: _Server, path: str) -> Iterator[http.client.HTTPResponse]:
    door = http.client.HTTPSConnection(
        server.host, server.port, timeout=SECONDS, context=server.trust
    )
    try:
        door.request("GET", path, headers=server.headers)
        with door.getresponse() as answer:
            yield answer
    finally:
        door.close()


@lru_cache(maxsize=8)
def _server(kubeconfig: str) -> _Server | None:
    """What the text of a kubeconfig says that is JSON and holds all keys; None of any other."""
    try:
        found = json.loads(kubeconfig)
        cluster, user = found["clusters"][0]["cluster"], found["users"][0]["user"]
        address = urlsplit(cluster["server"])
        if address.path.strip("/") or _SPECIAL & cluster.keys():
            return None
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        proof = _proof(user)
    except (ValueError, KeyError):
        return None
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.load_verify_locations(cadata=authority)
    if isinstance(proof, str):
        headers = {"Authorization": f"Bearer {proof}"}
        return _Server(address.hostname or "", address.port or 443, trust, headers)
    # Only files are taken: one with the certificate and its key, gone at once.
    with tempfile.NamedTemporaryFile("wb") as pair:
        pair.write(proof)
        pair.flush()
        trust.load_cert_chain(pair.name)
    return _Server(address.hostname or "", address.port or 443, trust)


def _proof(user: dict[str, str]) -> str | bytes:
    """A token, or a certificate with its key."""
    if "token" in user:
        return user["token"]
    pair = (user["client-certificate-data"], user["client-key-data"])
    return b"\n".join(base64.b64decode(each) for each in pair)
