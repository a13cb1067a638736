"""Persistent volumes that pods on all nodes share: folders of this machine, made beforehand.

There is no provisioner: a claim finds a volume that was made for it, or one of the class.
"""

from typing import Final

from cluster import layout
from cluster.kubectl import Kubectl, Manifest

CLASS: Final = "shared"
"""The default storage class, whose volumes any claim without a class may take."""
DEFAULT_MARK: Final = "storageclass.kubernetes.io/is-default-class"
EVERYONE_MAY_WRITE: Final = 0o777


def make_class(kubectl: Kubectl) -> None:
    """Make the default storage class."""
    kubectl.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": CLASS, "annotations": {DEFAULT_MARK: "true"}},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "Immediate",
        }
    )


def make(kubectl: Kubectl, *names: str, size: str = "10Gi", claim: str | None = None) -> None:
    """Make volumes; with a claim `NAMESPACE/NAME` they are only for that one."""
    for name in names:
        folder = layout.volumes() / name
        folder.mkdir(parents=True)
        folder.chmod(EVERYONE_MAY_WRITE)
    kubectl.apply(*(_volume(name, size, claim) for name in names))


def _volume(name: str, size: str, claim: str | None) -> Manifest:
    spec = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": CLASS,
        # Not hostPath: for a local volume the kubelet honours fsGroup.
        "local": {"path": str(layout.volumes() / name)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [_on_every_node()]}},
    }
    if claim is not None:
        namespace, _, claim_name = claim.partition("/")
        spec["claimRef"] = {"namespace": namespace, "name": claim_name}
    metadata = {"name": name}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


def _on_every_node() -> dict[str, object]:
    linux = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    return {"matchExpressions": [linux]}
