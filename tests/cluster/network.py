"""The cluster's network: a namespace with a bridge, and a link by which the machine reaches it.

Ports, chains, bridges and interfaces are all made inside of the namespace and go with it. The
namespace has no route to anywhere but the machine: what a pod sends outside is refused at once.
"""

from pathlib import Path

from cluster import commands, layout
from cluster.errors import Unavailable

HOST_LINK = "disttrain0"
BRIDGE = "cni0"


def namespace() -> Path:
    """Return the file that the network namespace is pinned to."""
    return layout.state() / "network"


def inside(*command: str | Path) -> list[str | Path]:
    """Return the command that runs this command in the namespace, as the same process."""
    return ["nsenter", f"--net={namespace()}", "--", *command]


def make() -> None:
    """Make the namespace, the bridge that nodes and pods share, and the machine's link to it."""
    namespace().touch()
    commands.run("unshare", f"--net={namespace()}", "true")
    commands.run(*inside("ip", "link", "set", "lo", "up"))
    commands.run(*inside("ip", "link", "add", BRIDGE, "type", "bridge"))
    commands.run(*inside("ip", "address", "add", f"{layout.FIRST_NODE}/16", "dev", BRIDGE))
    commands.run(*inside("ip", "link", "set", BRIDGE, "up"))
    # Where services lie, only kube-proxy knows; but without a route the kernel asks nobody. What is
    # sent from here to a service is what the API server tells webhooks.
    services = (layout.SERVICE_NETWORK, "dev", BRIDGE, "src", layout.FIRST_NODE)
    commands.run(*inside("ip", "route", "add", *services))
    commands.run(*inside("sysctl", "--quiet", "--write", "net.ipv4.ip_forward=1"))
    _make_link()


def add_address(node: layout.Node) -> None:
    """Give the bridge the address of one more node."""
    commands.run(*inside("ip", "address", "add", f"{node.address}/16", "dev", BRIDGE))


def remove_address(node: layout.Node) -> None:
    """Take a node's address from the bridge."""
    commands.run(*inside("ip", "address", "delete", f"{node.address}/16", "dev", BRIDGE))


def remove() -> None:
    """Remove the machine's link; the rest ends with the namespace's last process and mount."""
    # It may go by itself while we look at it: the kernel takes a namespace apart in its own time.
    commands.succeeds("ip", "link", "delete", HOST_LINK)
    commands.wait_until(lambda: not has_link(), f"the interface {HOST_LINK} is gone")


def has_link() -> bool:
    """Tell whether the machine has the link to the cluster."""
    return Path(f"/sys/class/net/{HOST_LINK}").exists()


def check_free() -> None:
    """Raise Unavailable if the machine already sends one of our networks somewhere."""
    for destination in (layout.HOST_ADDRESS, layout.FIRST_NODE, layout.API_SERVICE):
        found = commands.run("ip", "-4", "route", "show", "match", destination).strip()
        taken = [line for line in found.splitlines() if not line.startswith("default")]
        if taken:
            message = f"the test cluster needs {destination}, which is routed already: {taken[0]}"
            raise Unavailable(message)


def _make_link() -> None:
    ends = ("type", "veth", "peer", "name", "uplink", "netns", namespace())
    commands.run("ip", "link", "add", HOST_LINK, *ends)
    commands.run("ip", "address", "add", f"{layout.HOST_ADDRESS}/30", "dev", HOST_LINK)
    commands.run("ip", "link", "set", HOST_LINK, "up")
    commands.run(*inside("ip", "address", "add", f"{layout.LINK_ADDRESS}/30", "dev", "uplink"))
    commands.run(*inside("ip", "link", "set", "uplink", "up"))
    for destination in (layout.POD_NETWORK, layout.SERVICE_NETWORK):
        commands.run("ip", "route", "add", destination, "via", layout.LINK_ADDRESS)
