"""The manifest as the processes of a job get it: every default written out. Pure."""

from pydantic import JsonValue

from disttrain.job.spec import DistTrainJob


def manifest(job: DistTrainJob) -> dict[str, JsonValue]:
    """Return the manifest with the job's name, namespace and uid as its only metadata.

    Labels and annotations change while a job runs, and its processes do not read them.
    """
    written: dict[str, JsonValue] = job.model_dump(mode="json", by_alias=True)
    kept = {"name", "namespace", "uid"}
    return {**written, "metadata": job.metadata.model_dump(by_alias=True, include=kept)}
