"""Pods as the restricted Pod Security level wants them, of one small static program."""

from typing import Any

from cluster import busybox

SOME_USER = 65534


def restricted(name: str, *command: str) -> dict[str, Any]:
    """Return a pod that runs a command, for ever by default."""
    container = {
        "name": "main",
        "image": busybox.IMAGE,
        "command": list(command) or ["sleep", busybox.FOR_EVER],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {"requests": {"cpu": "10m", "memory": "8Mi"}},
    }
    spec = {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": SOME_USER,
            "fsGroup": SOME_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        # Nobody in it waits for SIGTERM.
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    metadata = {"name": name, "labels": {"pod": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def headless_service(name: str, pod: str) -> dict[str, Any]:
    """Return a service that gives one pod's address a name."""
    spec = {"clusterIP": "None", "selector": {"pod": pod}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def claim(name: str) -> dict[str, Any]:
    """Return a claim for a volume that the pods of a node share."""
    wanted = {"requests": {"storage": "1Mi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": wanted}
    metadata = {"name": name}
    kind = "PersistentVolumeClaim"
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}


def mounting(pod: dict[str, Any], claim_name: str, path: str) -> dict[str, Any]:
    """Return the same pod with the claim's volume at a path."""
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}
    mount = {"name": "data", "mountPath": path}
    container = {**pod["spec"]["containers"][0], "volumeMounts": [mount]}
    spec = {**pod["spec"], "volumes": [volume], "containers": [container]}
    return {**pod, "spec": spec}
