"""What a control plane without nodes used since a moment, for benchmarks."""

import re
from collections import Counter

from cluster.bare import ControlPlane


class PlaneMeter:
    """Begins to count when it is made."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._cpu_seconds = plane.cpu_seconds()
        self._writes = _writes(plane)

    def cpu_seconds(self) -> dict[str, float]:
        """CPU seconds of its components, and of what else runs as its process."""
        now = self._plane.cpu_seconds()
        return {name: seconds - self._cpu_seconds[name] for name, seconds in now.items()}

    def writes(self) -> dict[str, int]:
        """What everybody wrote to the API server, by resource, most first."""
        return dict((_writes(self._plane) - self._writes).most_common(30))


def _writes(plane: ControlPlane) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in plane.kubectl.run("get", "--raw", "/metrics").splitlines():
        if line.startswith("apiserver_request_total{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            if labels["verb"] in {"POST", "PUT", "PATCH", "APPLY", "DELETE"}:
                what = "/".join(filter(None, (labels["resource"], labels["subresource"])))
                found[f"{labels['verb']} {what}"] += int(float(line.rsplit(" ", 1)[1]))
    return found
