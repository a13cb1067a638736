"""Where the cluster keeps everything and which addresses it uses: one place for all of them.

One cluster per machine, therefore fixed names: whoever comes later, another process too, finds
the same cluster and can stop it. All state lies under one folder; the network lies in a network
namespace of its own, so that no port, chain or bridge can meet those of the machine.
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAME: Final = "disttrain-cluster"
"""The folder, the network namespace, the cgroup and the lock are called by this name."""

HOST_ADDRESS: Final = "10.243.0.1"
"""The machine's end of the link into the network namespace."""
LINK_ADDRESS: Final = "10.243.0.2"
"""The cluster's end of that link."""
POD_NETWORK: Final = "10.244.0.0/16"
SERVICE_NETWORK: Final = "10.96.0.0/16"
API_SERVICE: Final = "10.96.0.1"
"""Kubernetes gives its own service the first address of the range."""
FIRST_NODE: Final = "10.244.0.1"
"""The bridge's address: the first node, the API server and CoreDNS listen on it."""
API_PORT: Final = 6443
API_URL: Final = f"https://{FIRST_NODE}:{API_PORT}"
ETCD_URL: Final = "http://127.0.0.1:2379"
ETCD_PEER_URL: Final = "http://127.0.0.1:2380"


def state() -> Path:
    """Return the folder with everything that lives as long as the cluster."""
    return Path(tempfile.gettempdir()) / NAME


def lock_file() -> Path:
    """Return the file whose lock says who may start and stop the cluster."""
    return Path(tempfile.gettempdir()) / f"{NAME}.lock"


def images_lock_file() -> Path:
    """Return the file whose lock says who may build images, or give them to the nodes."""
    return Path(tempfile.gettempdir()) / f"{NAME}-images.lock"


def packages_lock_file() -> Path:
    """Return the file whose lock says who may install packages."""
    return Path(tempfile.gettempdir()) / f"{NAME}-packages.lock"


def cache() -> Path:
    """Return the folder with what is built once: programs, base images."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / NAME


def logs() -> Path:
    """Return the folder with one log per component."""
    return state() / "logs"


def failed_logs() -> Path:
    """Return the folder with the logs of the last cluster that did not start."""
    return cache() / "failed-logs"


def certificates() -> Path:
    """Return the folder with the CA, the keys and the certificates."""
    return state() / "certificates"


def kubeconfig(user: str) -> Path:
    """Return the kubeconfig of a component, or of the administrator: `admin`."""
    return state() / "kubeconfigs" / f"{user}.yaml"


def volumes() -> Path:
    """Return the folder that holds one folder per persistent volume."""
    return state() / "volumes"


def images() -> Path:
    """Return the folder with what the nodes know of images: unpacking them takes minutes."""
    return cache() / "containerd"


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the cluster: its folders and its address, derived from its number."""

    number: int
    """From 1 on; the address of node N is 10.244.0.N, its pods are at 10.244.N.*."""

    @property
    def name(self) -> str:
        """The name that Kubernetes knows it by."""
        return f"node-{self.number}"

    @property
    def address(self) -> str:
        """The node's own address on the bridge."""
        return f"10.244.0.{self.number}"

    @property
    def folder(self) -> Path:
        """Everything of this node."""
        return state() / self.name

    @property
    def images(self) -> Path:
        """The root of this node's containerd; it outlives the cluster."""
        return images() / self.name

    @property
    def containerd_socket(self) -> Path:
        """Where this node's containerd listens."""
        return self.folder / "containerd.sock"

    @property
    def cgroup(self) -> str:
        """The cgroup, below every hierarchy's root, that holds the node's pods."""
        return f"{NAME}/{self.name}"
