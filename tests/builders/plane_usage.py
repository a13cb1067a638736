"""What a control plane without nodes used, for benchmarks."""

import re
from collections import Counter

from cluster.bare import ControlPlane


def since(before: dict[str, float], plane: ControlPlane) -> dict[str, float]:
    """CPU seconds of its components since they were `before`."""
    return {name: seconds - before[name] for name, seconds in plane.cpu_seconds().items()}


def writes(plane: ControlPlane) -> dict[str, int]:
    """What everybody wrote to the API server until now, by resource, most first."""
    found: Counter[str] = Counter()
    for line in plane.kubectl.run("get", "--raw", "/metrics").splitlines():
        if line.startswith("apiserver_request_total{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            if labels["verb"] in {"POST", "PUT", "PATCH", "APPLY", "DELETE"}:
                what = "/".join(filter(None, (labels["resource"], labels["subresource"])))
                found[f"{labels['verb']} {what}"] += int(float(line.rsplit(" ", 1)[1]))
    return dict(found.most_common(30))
