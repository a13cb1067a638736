"""What other projects want installed, on the test cluster, by images that are built here."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from cluster import Kubectl

LIMIT: Final = timedelta(minutes=5)
"""Their certificates take a minute to reach them, on cores that nobody else uses."""


def make(kubectl: Kubectl, objects: list[dict[str, Any]]) -> None:
    """Make the objects, those of no namespace first."""
    _each_namespace(kubectl, objects, Kubectl.apply)


def remove(kubectl: Kubectl, objects: list[dict[str, Any]]) -> None:
    """Remove them, the last ones first."""
    _each_namespace(kubectl, objects[::-1], _delete)


def run(deployment: dict[str, Any], image: str) -> None:
    """Let a Deployment's program come from an image of the nodes, and be small."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    container["image"] = image
    container["imagePullPolicy"] = "IfNotPresent"
    container["resources"] = {"requests": {"cpu": "50m", "memory": "64Mi"}}


def wait(kubectl: Kubectl, deployment: str) -> None:
    """Return once it has its pod."""
    kubectl.wait_until("Available", f"deployment/{deployment}", LIMIT)


def _each_namespace(
    kubectl: Kubectl, objects: list[dict[str, Any]], act: Callable[..., None]
) -> None:
    """Act on those of each namespace by themselves, as kubectl wants it; on those of none first."""
    found: dict[str, list[dict[str, Any]]] = {"": []}
    for each in objects:
        found.setdefault(each["metadata"].get("namespace", ""), []).append(each)
    for namespace, inside in found.items():
        act(kubectl.within(namespace or "default"), *inside)


def _delete(kubectl: Kubectl, *objects: dict[str, Any]) -> None:
    content = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    kubectl.run("delete", "--ignore-not-found", "-f", "-", stdin=content, limit=LIMIT)
