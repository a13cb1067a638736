"""Pods as Prometheus finds them on Kubernetes, for a Prometheus that was built without that.

Debian's is: it is told of the same targets, with the same labels before relabeling, in a file. And
it runs on this machine: the API server forwards its questions to the pods.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cluster import Kubectl
from disttrain_operator.cluster import credentials

Json = dict[str, Any]


def write(namespace: Kubectl, file: Path) -> None:
    """Write what is there now, all at once."""
    server = credentials.of_kubeconfig(namespace.kubeconfig).server
    pods = namespace.items("pods")
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(list(targets(pods, urlsplit(server).netloc))))
    unfinished.replace(file)


def access(namespace: Kubectl, folder: Path) -> Json:
    """What a scrape configuration says to be heard by the API server; its files are in `folder`."""
    found = credentials.of_kubeconfig(namespace.kubeconfig)
    files = {"authority.pem": found.authority, "pair.pem": found.certificate}
    for name, content in files.items():
        if content is not None:
            (folder / name).write_bytes(content)
    trust = {"ca_file": str(folder / "authority.pem")}
    if found.certificate is None:
        return {"tls_config": trust, "authorization": {"credentials": found.read_token()}}
    pair = str(folder / "pair.pem")
    return {"tls_config": {**trust, "cert_file": pair, "key_file": pair}}


def targets(pods: Iterable[Json], server: str) -> Iterator[Json]:
    """A target per port of each container, as the role `pod` has them, by way of the API server."""
    for pod in pods:
        address = pod["status"].get("podIP")
        if address is None:
            continue
        for container in pod["spec"]["containers"]:
            for port in container.get("ports", []):
                of_port = {"__meta_kubernetes_pod_container_port_name": port.get("name", "")}
                number = port["containerPort"]
                way = {**_way(pod, number), "instance": f"{address}:{number}"}
                yield {"targets": [server], "labels": {**_of_pod(pod), **of_port, **way}}


def _way(pod: Json, port: int) -> dict[str, str]:
    metadata = pod["metadata"]
    place = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}:{port}"
    return {"__scheme__": "https", "__metrics_path__": f"{place}/proxy/metrics"}


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
