"""The metrics API of a cluster without a metrics server: what it tells is what a test writes.

To those who ask a group of the API is the same, whether a server or a definition stands behind it.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from cluster import Kubectl, commands
from cluster.errors import CommandFailed

GROUP: Final = "metrics.k8s.io"
VERSION: Final = "v1beta1"
DEFINITION: Final[dict[str, Any]] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"pods.{GROUP}",
        # Who defines something in a group of Kubernetes' own has to say so.
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": GROUP,
        "names": {"plural": "pods", "kind": "PodMetrics"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


@contextmanager
def served(namespace: Kubectl, pod: str, usage: Mapping[str, str]) -> Iterator[None]:
    """As long as the context lasts there is a metrics API, which knows this pod's usage."""
    namespace.apply(DEFINITION)
    try:
        namespace.wait_until("Established", f"crd/pods.{GROUP}")
        labels = namespace.get("pod", pod)["metadata"]["labels"]
        content = json.dumps(_metrics(pod, labels, usage))
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace.namespace}/pods"
        # A definition is Established a moment before it is served.
        commands.wait_until(lambda: _creates(namespace, path, content), f"{GROUP} is served")
        yield
    finally:
        namespace.run("delete", f"crd/pods.{GROUP}")


def _creates(namespace: Kubectl, path: str, content: str) -> bool:
    try:
        namespace.run("create", "--raw", path, "-f", "-", stdin=content)
    except CommandFailed:
        return False
    return True


def _metrics(pod: str, labels: Mapping[str, str], usage: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "PodMetrics",
        "metadata": {"name": pod, "labels": labels},
        "timestamp": "2026-01-01T00:00:00Z",
        "window": "15s",
        "containers": [{"name": "disttrain", "usage": usage}],
    }
