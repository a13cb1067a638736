"""kube-proxy and CoreDNS: the addresses and the names of services, for all nodes at once.

All nodes share one network namespace, hence one of each serves them all.
"""

import json
from datetime import timedelta

from cluster import binaries, commands, control_plane, kubeconfigs, kubelet, layout, network
from cluster.processes import Process

PROXY = "kube-proxy"
DNS = "coredns"

# What lies outside does not exist, and that at once: a look-up that hangs hides its reason.
COREFILE = """
{domain}:53 in-addr.arpa:53 {{
    bind {address}
    errors
    kubernetes {domain} in-addr.arpa {{
        kubeconfig {kubeconfig}
        ttl 1
    }}
}}
.:53 {{
    bind {address}
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def start() -> None:
    """Start both; returns at once."""
    start_proxy()
    start_dns()


def start_proxy() -> Process:
    """Start kube-proxy."""
    config = layout.state() / "kube-proxy.json"
    config.write_text(json.dumps(_proxy_config()))
    program = binaries.kubernetes(PROXY)
    return Process.start(PROXY, network.inside(*program, f"--config={config}"))


def start_dns() -> Process:
    """Start CoreDNS."""
    user = kubeconfigs.make(DNS, DNS)
    values = {"address": layout.FIRST_NODE, "kubeconfig": user, "domain": kubelet.DOMAIN}
    config = layout.state() / "Corefile"
    config.write_text(COREFILE.format(**values))
    return Process.start(DNS, network.inside(binaries.path(DNS), "-conf", config))


def wait_for_dns() -> None:
    """Return once names of services resolve."""
    lookup = ("busybox", "nslookup", f"kubernetes.default.svc.{kubelet.DOMAIN}")
    query = network.inside(*lookup, layout.FIRST_NODE)
    control_plane.wait_for(DNS, lambda: commands.succeeds(*query, limit=timedelta(seconds=5)))


def _proxy_config() -> dict[str, object]:
    untouched = "0s"
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfigs.make(PROXY, "system:kube-proxy"))},
        "mode": "iptables",
        "clusterCIDR": layout.POD_NETWORK,
        "hostnameOverride": layout.Node(1).name,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        # Sizes and time-outs of connection tracking belong to the whole machine.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": untouched,
            "tcpCloseWaitTimeout": untouched,
            "udpTimeout": untouched,
            "udpStreamTimeout": untouched,
        },
    }
