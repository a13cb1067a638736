"""Whether a node is lost, from what the API server says of it. Pure."""

from typing import Any, Final

from disttrain_operator.observed import parsing

_LOST: Final = frozenset({"node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service"})
"""Taints of a node whose kubelet does not answer, or of which somebody says that it is off."""


def trouble(node: dict[str, Any]) -> str:
    """Why no kubelet will end a pod there, in words; empty for a node that answers.

    One that is not ready but says so itself answers: a volume may take its time to be unmounted.
    """
    ready = parsing.conditions(parsing.mapping(node.get("status"))).get("Ready", {})
    if ready.get("status") == "Unknown":
        return "its node does not answer"
    taints = parsing.items(parsing.mapping(node.get("spec")).get("taints"))
    found = sorted(_LOST.intersection(str(taint.get("key")) for taint in taints))
    return f"its node has the taint {found[0]}" if found else ""
