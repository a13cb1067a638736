"""Pods as Prometheus finds them on Kubernetes, for a Prometheus that was built without that.

Debian's is: it is told of the same targets, with the same labels before relabeling, in a file.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cluster import Kubectl

Json = dict[str, Any]


def write(namespace: Kubectl, file: Path) -> None:
    """Write what is there now, all at once."""
    pods = namespace.items("pods")
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(list(targets(pods))))
    unfinished.replace(file)


def targets(pods: Iterable[Json]) -> Iterator[Json]:
    """A target per port of each container, as the role `pod` has them."""
    for pod in pods:
        address = pod["status"].get("podIP")
        if address is None:
            continue
        for container in pod["spec"]["containers"]:
            for port in container.get("ports", []):
                of_port = {"__meta_kubernetes_pod_container_port_name": port.get("name", "")}
                where = f"{address}:{port['containerPort']}"
                yield {"targets": [where], "labels": {**_of_pod(pod), **of_port}}


def _of_pod(pod: Json) -> dict[str, str]:
    metadata = pod["metadata"]
    own = {
        f"__meta_kubernetes_pod_label_{re.sub(r'[^a-zA-Z0-9_]', '_', name)}": value
        for name, value in metadata.get("labels", {}).items()
    }
    return {
        **own,
        "__meta_kubernetes_namespace": metadata["namespace"],
        "__meta_kubernetes_pod_name": metadata["name"],
        "__meta_kubernetes_pod_phase": pod["status"]["phase"],
    }
