"""A real Kubernetes on this machine for the end-to-end tests, from package registries alone.

etcd, the API server, the controller manager, the scheduler, kubelets with containerd and runc,
kube-proxy and CoreDNS run as plain processes in a network namespace of their own. `Cluster` starts
and stops them; `python -m cluster` does the same for a person. Nothing in here knows DistTrain.
"""

from cluster.cluster import Cluster
from cluster.errors import ClusterError, Unavailable
from cluster.kubectl import Kubectl

__all__ = ["Cluster", "ClusterError", "Kubectl", "Unavailable"]
