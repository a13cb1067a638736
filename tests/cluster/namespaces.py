"""Namespaces for tests: enforcing the restricted Pod Security level, gone with all they hold."""

from datetime import timedelta
from typing import Final

from cluster.kubectl import Kubectl

LEVEL: Final = "pod-security.kubernetes.io/enforce"
RESTRICTED: Final = "restricted"
ACCOUNT_LIMIT: Final = timedelta(minutes=2)
"""Controllers come back in their own time when the API server was away."""


def make(kubectl: Kubectl, name: str, level: str = RESTRICTED) -> Kubectl:
    """Make a namespace that admits only pods of this level; returns kubectl within it."""
    labels = {LEVEL: level}
    metadata = {"name": name, "labels": labels}
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    within = kubectl.within(name)
    # A pod made before its account is refused.
    within.wait_until("create", "serviceaccount/default", ACCOUNT_LIMIT)
    return within


def remove(kubectl: Kubectl, name: str) -> None:
    """Remove a namespace and all it holds, without waiting for it."""
    kubectl.run("delete", "namespace", name, "--wait=false", "--ignore-not-found")
