"""etcd, the API server, the controller manager and the scheduler: each with its own log."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final

from cluster import binaries, certificates, commands, kubeconfigs, layout, network
from cluster.kubectl import Kubectl
from cluster.processes import Process, log_of

ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
START_LIMIT: Final = timedelta(minutes=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much the controllers and the scheduler may do at a time: as shipped by default."""

    requests_per_second: int | None = None
    """Of each to the API server; shipped are 20 and 50, which hide how fast an operator is."""
    concurrent_syncs: int | None = None
    """Objects of a kind that a controller looks after at a time; 5 as shipped, for most kinds."""


AS_SHIPPED: Final = Limits()


class Nodes(Enum):
    """Who stands behind the nodes."""

    REAL = "real"
    PRETENDED = "pretended"
    """Nobody, so that a node's silence means nothing: it is never taken for lost."""


SYNCED_KINDS: Final = ("deployment", "job", "replicaset", "service-endpoint", "statefulset")


def start(limits: Limits = AS_SHIPPED, nodes: Nodes = Nodes.REAL) -> None:
    """Start all four; returns when the API server is ready."""
    start_etcd()
    start_api_server()
    # The two wait for the API server by themselves, but end when they wait too long.
    wait_for_api_server()
    start_controller_manager(limits, nodes)
    start_scheduler(limits)


def start_etcd() -> Process:
    """Start etcd; its data is worth nothing after a crash of the machine, so nothing is synced."""
    arguments = (
        f"--data-dir={layout.state() / 'etcd'}",
        f"--listen-client-urls={layout.ETCD_URL}",
        f"--advertise-client-urls={layout.ETCD_URL}",
        f"--listen-peer-urls={layout.ETCD_PEER_URL}",
        f"--initial-advertise-peer-urls={layout.ETCD_PEER_URL}",
        f"--initial-cluster=default={layout.ETCD_PEER_URL}",
        "--unsafe-no-fsync",
        # Thousands of jobs write more than the default of 2 GB until the API server compacts.
        "--quota-backend-bytes=8589934592",
    )
    return Process.start(ETCD, network.inside("etcd", *arguments))


def start_api_server() -> Process:
    """Start the API server, with role-based access and Pod Security as everywhere."""
    server, accounts = certificates.API_SERVER, certificates.SERVICE_ACCOUNTS
    kubelet_client = certificates.make_client(API_SERVER, kubeconfigs.ADMINISTRATORS)
    arguments = (
        f"--etcd-servers={layout.ETCD_URL}",
        f"--advertise-address={layout.FIRST_NODE}",
        f"--secure-port={layout.API_PORT}",
        f"--tls-cert-file={server.certificate}",
        f"--tls-private-key-file={server.key}",
        f"--client-ca-file={certificates.AUTHORITY.certificate}",
        f"--kubelet-client-certificate={kubelet_client.certificate}",
        f"--kubelet-client-key={kubelet_client.key}",
        # By address: nothing resolves the names of the nodes.
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={accounts.certificate}",
        f"--service-account-signing-key-file={accounts.key}",
        f"--service-cluster-ip-range={layout.SERVICE_NETWORK}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
    )
    return _start(API_SERVER, *arguments)


def wait_for_api_server() -> None:
    """Return once the API server says that it is ready."""
    probe = administrator().command("get", "--raw", "/readyz", "--request-timeout=5s")
    wait_for(API_SERVER, lambda: commands.succeeds(*probe))


def administrator() -> Kubectl:
    """Return kubectl for the user who may do everything."""
    return Kubectl(layout.kubeconfig("admin"))


def start_controller_manager(limits: Limits = AS_SHIPPED, nodes: Nodes = Nodes.REAL) -> Process:
    """Start the controller manager; each controller uses its own service account."""
    authority = certificates.AUTHORITY
    controllers = "*" if nodes is Nodes.REAL else "*,-node-lifecycle-controller"
    arguments = (
        *_client(CONTROLLER_MANAGER),
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={certificates.SERVICE_ACCOUNTS.key}",
        f"--root-ca-file={authority.certificate}",
        f"--cluster-signing-cert-file={authority.certificate}",
        f"--cluster-signing-key-file={authority.key}",
        f"--controllers={controllers}",
        *_flags(limits),
    )
    return _start(CONTROLLER_MANAGER, *arguments)


def start_scheduler(limits: Limits = AS_SHIPPED) -> Process:
    """Start the scheduler; its limit of requests can only be given in a file."""
    client: dict[str, object] = {"kubeconfig": str(layout.kubeconfig(SCHEDULER))}
    if limits.requests_per_second is not None:
        client |= {"qps": limits.requests_per_second, "burst": limits.requests_per_second}
    config = layout.state() / f"{SCHEDULER}.json"
    content = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": client,
        "leaderElection": {"leaderElect": False},
    }
    config.write_text(json.dumps(content))
    return _start(SCHEDULER, *_client(SCHEDULER), f"--config={config}")


def stop_api_server() -> None:
    """Stop the API server at once: asked to end, it would serve open watches for a minute."""
    running = Process.load(API_SERVER)
    if running is not None:
        running.stop()


def wait_for(name: str, ready: Callable[[], bool]) -> None:
    """Return once the component is ready; raise ComponentDied at once if it ended."""
    process = Process.load(name)

    def is_ready() -> bool:
        if process is not None:
            process.check()
        return ready()

    what = f"{name} is ready (its log is {log_of(name)})"
    commands.wait_until(is_ready, what, limit=START_LIMIT)


def _flags(limits: Limits) -> list[str]:
    flags = []
    if limits.requests_per_second is not None:
        flags += [f"--kube-api-{name}={limits.requests_per_second}" for name in ("qps", "burst")]
    if limits.concurrent_syncs is not None:
        number = limits.concurrent_syncs
        flags += [f"--concurrent-{kind}-syncs={number}" for kind in SYNCED_KINDS]
    return flags


def _client(name: str) -> tuple[str, ...]:
    path = kubeconfigs.make(name, f"system:{name}", "system:authenticated")
    flags = ("--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig")
    return tuple(f"{flag}={path}" for flag in flags)


def _start(name: str, *arguments: str) -> Process:
    # The default folder for made-up certificates belongs to the machine's own Kubernetes.
    folder = f"--cert-dir={layout.state() / 'generated' / name}"
    return Process.start(name, network.inside(*binaries.kubernetes(name), folder, *arguments))
