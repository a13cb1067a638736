"""Persistent volumes that pods on all nodes share: folders of this machine, one for each claim."""

from pathlib import Path
from typing import Any, Final

from cluster import layout
from cluster.kubectl import Kubectl, Manifest

CLASS: Final = "shared"
"""The default storage class."""
DEFAULT_MARK: Final = "storageclass.kubernetes.io/is-default-class"
ONLY_OUR_GROUP: Final = 0o770
"""The kubelet gives the folder to the pod's group: a pod that names none may not write."""


def make_class(kubectl: Kubectl) -> None:
    """Make the default storage class."""
    kubectl.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": CLASS, "annotations": {DEFAULT_MARK: "true"}},
            "provisioner": "test.disttrain.dev/folders",
            "volumeBindingMode": "Immediate",
        }
    )


def make_for(kubectl: Kubectl, claim: dict[str, Any]) -> None:
    """Make the volume of a claim; again is no error."""
    folder = layout.volumes() / _name(claim)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(ONLY_OUR_GROUP)
    kubectl.apply(manifest(claim))


def folder_of(kubectl: Kubectl, claim: str) -> Path:
    """Return the folder of this machine that holds what is in the volume of a claim."""
    return layout.volumes() / _name(kubectl.get("persistentvolumeclaim", claim))


def manifest(claim: dict[str, Any]) -> Manifest:
    """Return the volume of a claim."""
    asked, metadata = claim["spec"], claim["metadata"]
    spec = {
        "capacity": asked["resources"]["requests"],
        "accessModes": asked["accessModes"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": CLASS,
        # Not hostPath: for a local volume the kubelet honours fsGroup.
        "local": {"path": str(layout.volumes() / _name(claim))},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [_on_every_node()]}},
        # With the uid: a claim of the same name that comes later gets a volume of its own.
        "claimRef": {name: metadata[name] for name in ("namespace", "name", "uid")},
    }
    kind = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": _name(claim)}}
    return {**kind, "spec": spec}


def _name(claim: dict[str, Any]) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def _on_every_node() -> dict[str, object]:
    linux = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    return {"matchExpressions": [linux]}
