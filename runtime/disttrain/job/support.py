"""What a good manifest asks for that cannot be done in the place where it runs. Pure.

Also which fields mean nothing on one machine.
Not among the rules: the same manifest may run elsewhere, or with a later release.
"""

from collections.abc import Iterator

from disttrain.job import cluster_names, object_uri
from disttrain.job.finding import Finding, Path
from disttrain.job.section import Section, is_on_a_cluster
from disttrain.job.spec import DistTrainJob, Spec
from disttrain.job.transport import TransportChoice

_CODE: Path = ("spec", "task", "source")
"""Here the code lies beside the manifest, so nothing is missed: one manifest serves both places."""


def on_a_cluster(job: DistTrainJob) -> list[Finding]:
    return [*_names(job), *_between_pods(job.spec)]


def _names(job: DistTrainJob) -> Iterator[Finding]:
    """What has no names that Kubernetes takes."""
    name, replicas = job.metadata.name, job.spec.replicas
    longest = cluster_names.replica_group_set(name, replicas.count - 1)
    excess = len(longest) - cluster_names.LONGEST_SET
    if replicas.processes > 1 and excess > 0:
        most = 10 ** (len(str(replicas.count - 1)) - excess)
        yield Finding(
            path=("spec", "replicas", "count"),
            message=f"must be at most {most} for replicas of several processes of a job whose name "
            f"has {len(name)} characters, got {replicas.count}: longer names of StatefulSets are "
            "not taken; give the job a shorter name",
        )


def _between_pods(spec: Spec) -> Iterator[Finding]:
    if spec.transport.kind is TransportChoice.SHARED_MEMORY:
        yield Finding(
            path=("spec", "transport", "kind"),
            message="pods share no memory: must be auto or tcp, got sharedMemory",
        )
    uri = spec.checkpoint.uri
    is_on_node = uri.startswith("/") or object_uri.scheme(uri) in object_uri.ON_DISK
    if is_on_node:
        yield Finding(
            path=("spec", "checkpoint", "uri"),
            message="must be a relative path, which lies in the job's volume, or an object store "
            f"such as s3://bucket/prefix, got '{uri}'; spec.checkpoint.volume says which volume",
        )


def without_meaning(job: DistTrainJob) -> list[Path]:
    """Return the paths that are given, other than their defaults, and are missed here."""
    return [path for path in _without_meaning(job, ()) if path != _CODE]


def _without_meaning(section: Section, around: Path) -> Iterator[Path]:
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        path = (*around, field.alias or name)
        if is_on_a_cluster(field) and value != field.default:
            yield path
        elif isinstance(value, Section):
            yield from _without_meaning(value, path)
