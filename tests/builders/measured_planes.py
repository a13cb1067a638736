"""A control plane with nodes that are not there, ready for many jobs, for benchmarks."""

import asyncio
import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from builders import fake_nodes, many_at_once, many_jobs
from builders.api_server import ApiServer
from builders.fake_nodes import FakeNodes
from builders.many_jobs import JOBS_PATH, PODS
from builders.report import say
from cluster.bare import ControlPlane
from cluster.control_plane import Limits
from disttrain_generators import crd

Maker = Callable[[str], Awaitable[None]]
"""Makes a job of this name, or all that it consists of."""

LIMITS = Limits(requests_per_second=1000, concurrent_syncs=20)
NODES = 20
BEGIN_SECONDS = 120
"""For whatever must begin before anything is measured."""


@contextmanager
def plane() -> Iterator[ControlPlane]:
    """A control plane; of one that breaks, the ends of its logs are told."""
    with ControlPlane(LIMITS) as made:
        try:
            yield made
        except Exception:
            say(made.last_words())
            raise


@asynccontextmanager
async def prepared(plane: ControlPlane) -> AsyncIterator[tuple[ApiServer, FakeNodes]]:
    """A namespace with a bound claim, the CRD and nodes."""
    plane.kubectl.apply(crd.definition())
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "kubelet.log"
        with fake_nodes.running(plane.kubeconfig, NODES, log) as nodes:
            async with ApiServer(plane.kubeconfig, many_at_once.AT_ONCE) as api:
                await many_at_once.until(partial(serves, api, JOBS_PATH), BEGIN_SECONDS)
                await many_jobs.make_space(api)
                await many_at_once.until(partial(many_jobs.is_bound, api), BEGIN_SECONDS)
                yield api, nodes


async def serves(api: ApiServer, path: str) -> bool:
    """Whether the API server knows of the kind of this collection."""
    try:
        await api.get(path)
    except RuntimeError:
        return False
    return True


async def warm_up(api: ApiServer, nodes: FakeNodes, make: Maker, path: str) -> None:
    """Let the control plane meet each kind once, as its first requests take seconds.

    `make` makes one job, in the collection at `path`; whoever deletes it there deletes its pods.
    """
    await make("warm")
    await wait(nodes, lambda told: told["ready"] == PODS, BEGIN_SECONDS)
    await api.delete(f"{path}/warm", {"propagationPolicy": "Background"})
    await wait(nodes, lambda told: told["pods"] == 0, BEGIN_SECONDS)


async def wait(
    nodes: FakeNodes, reached: Callable[[dict[str, Any]], bool], seconds: float
) -> float:
    """Return when the numbers of pods reached something, on the monotonic clock."""
    return await asyncio.to_thread(nodes.wait, reached, seconds)


class PlaneMeter:
    """What a control plane used since this was made."""

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


def told(figures: dict[str, Any]) -> dict[str, Any]:
    say(" ".join(f"{name}={value:.3g}" for name, value in figures.items()))
    return figures
