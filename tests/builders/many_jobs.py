"""Many small jobs in one namespace: the jobs, the objects that they get, the claim they share."""

import json
from typing import Any

from builders.api_server import ApiServer
from builders.jobs import a_spec
from disttrain.job.parsing import parse_job
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.children import children
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.manifests.context import Context, Scale

SPACE = "jobs"
CLAIM = "checkpoints"
JOBS_PATH = Kind.DistTrainJob.value.path(SPACE)
PODS = 5
"""Of each job: 2 shards, 2 replicas, a coordinator."""


def job(name: str, replicas: int = 2, **more: Any) -> dict[str, Any]:
    """A job of five pods, or of three and other replicas."""
    spec = a_spec(
        checkpoint={"volume": {"claimName": CLAIM}},
        parameterServer={"shards": 2},
        replicas={"count": replicas},
        **more,
    )
    header = {"apiVersion": Kind.DistTrainJob.value.api_version, "kind": Kind.DistTrainJob.name}
    return {**header, "metadata": {"name": name, "namespace": SPACE}, "spec": spec}


def children_of(name: str) -> list[dict[str, Any]]:
    """The objects of its own that the operator makes for a job."""
    parsed = parse_job(json.dumps(job(name)))
    context = Context(name, SPACE, f"uid-{name}", parsed, ManifestConfig())
    made = children(context, Scale(shards=2, replicas=2, coordinator=True))
    return [child.body for child in made]


async def make_space(api: ApiServer) -> None:
    """Make the namespace and the claim, and a volume for it."""
    named = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
    await api.post("/api/v1/namespaces", named)
    claim = {"namespace": SPACE, "name": CLAIM}
    shared: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    size = {"storage": "1Gi"}
    volume = {**shared, "capacity": size, "hostPath": {"path": "/nowhere"}, "claimRef": claim}
    header = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": CLAIM}}
    await api.post("/api/v1/persistentvolumes", {**header, "spec": volume})
    header = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim}
    spec = {**shared, "resources": {"requests": size}, "volumeName": CLAIM}
    path = Kind.PersistentVolumeClaim.value.path(SPACE)
    await api.post(path, {**header, "spec": spec})


async def is_bound(api: ApiServer) -> bool:
    """Whether the claim has its volume."""
    found = await api.get(f"{Kind.PersistentVolumeClaim.value.path(SPACE)}/{CLAIM}")
    return bool(found["status"].get("phase") == "Bound")
