"""Where a job's files lie once its pods are gone. Pure."""

from disttrain.cluster.interface import Object
from disttrain.job import cluster_names, object_uri, pod_layout


def place(job: Object) -> str:
    """The folder of a job and the claim whose volume it is on, or its place in an object store."""
    metadata = job["metadata"]
    checkpoint = job["spec"].get("checkpoint") or {}
    volume, uri = checkpoint.get("volume") or {}, checkpoint.get("uri") or ""
    if object_uri.is_one(uri):
        return object_uri.of_job(uri, metadata["name"], metadata["uid"])
    claim = volume.get("claimName") or cluster_names.checkpoints_claim(metadata["name"])
    folder = pod_layout.run_folder(metadata["name"], metadata["uid"]).name
    return f"folder {folder} of persistentvolumeclaim/{claim}"
