"""Reads objects from the API server by itself: a look by kubectl costs a sixth of a core's second.

Tests that wait look many times a second, on the cores that those use whom they wait for. Only for
the test cluster's own kubeconfigs and the kinds that are looked at most; kubectl does the rest, and
says what is wrong.
"""

import base64
import http.client
import json
import ssl
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from cluster import layout

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

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Server:
    """Where it is, and how it knows us."""

    host: str
    port: int
    trust: ssl.SSLContext


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


def _ask(kubeconfig: Path, namespace: str, kind: str, rest: str) -> Object | None:
    if kind not in _PLACES or not kubeconfig.is_relative_to(layout.state()):
        return None
    group, resource = _PLACES[kind]
    try:
        return _answer(kubeconfig, f"/{group}/namespaces/{namespace}/{resource}{rest}")
    except (OSError, ValueError, http.client.HTTPException):
        return None


def _answer(kubeconfig: Path, path: str) -> Object | None:
    server = _server(kubeconfig.read_text())
    door = http.client.HTTPSConnection(
        server.host, server.port, timeout=SECONDS, context=server.trust
    )
    try:
        door.request("GET", path)
        answer = door.getresponse()
        content = answer.read()
    finally:
        door.close()
    if answer.status != http.HTTPStatus.OK:
        return None
    found: Object = json.loads(content)
    return found


@lru_cache(maxsize=8)
def _server(kubeconfig: str) -> _Server:
    """What the text of one of our own kubeconfigs says; they are JSON, and hold all keys."""
    content = json.loads(kubeconfig)
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    address = urlsplit(cluster["server"])
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.load_verify_locations(cadata=authority)
    # Only files are taken: one with the certificate and its key, gone at once.
    with tempfile.NamedTemporaryFile("wb") as pair:
        pair.write(base64.b64decode(user["client-certificate-data"]))
        pair.write(base64.b64decode(user["client-key-data"]))
        pair.flush()
        trust.load_cert_chain(pair.name)
    return _Server(address.hostname or "", address.port or 443, trust)
