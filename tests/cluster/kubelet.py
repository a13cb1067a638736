"""The kubelet of one node."""

import json

from cluster import binaries, certificates, control_plane, kubeconfigs, layout, network
from cluster.processes import Process

DOMAIN = "cluster.local"


def start(node: layout.Node) -> Process:
    """Start the node's kubelet; the node registers itself and becomes Ready a little later."""
    folder = node.folder / "kubelet"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "resolv.conf").write_text(f"nameserver {layout.FIRST_NODE}\n")
    config = folder / "config.json"
    config.write_text(json.dumps(_config(node)))
    user = kubeconfigs.make(name(node), f"system:node:{node.name}", "system:nodes")
    arguments = (
        f"--config={config}",
        f"--kubeconfig={user}",
        f"--root-dir={folder}",
        f"--cert-dir={folder / 'certificates'}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
    )
    return Process.start(name(node), network.inside(*binaries.kubernetes("kubelet"), *arguments))


def name(node: layout.Node) -> str:
    """Return the name of the component."""
    return f"kubelet-{node.name}"


def wait_until_serving(node: layout.Node) -> None:
    """Return once the API server knows the node and reports it as Ready."""
    template = '{.status.conditions[?(@.type=="Ready")].status}'
    control_plane.wait_for(
        name(node),
        lambda: control_plane.administrator().read("node", node.name, template) == "True",
    )


def _config(node: layout.Node) -> dict[str, object]:
    webhook = {"enabled": True, "cacheTTL": "10s"}
    authority = {"clientCAFile": str(certificates.AUTHORITY.certificate)}
    anonymous = {"enabled": False}
    folder = node.folder / "kubelet"
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "healthzBindAddress": node.address,
        "authentication": {"anonymous": anonymous, "webhook": webhook, "x509": authority},
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{node.containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "clusterDomain": DOMAIN,
        "clusterDNS": [layout.FIRST_NODE],
        "resolvConf": str(folder / "resolv.conf"),
        "podLogsDir": str(folder / "pod-logs"),
        "volumePluginDir": str(folder / "volume-plugins"),
        # Pods start one after the other otherwise, and images come from no registry anyway.
        "serializeImagePulls": False,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
    }
