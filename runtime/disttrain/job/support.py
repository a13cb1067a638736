"""What a good manifest asks for that cannot be done yet, or not in the place where it runs. Pure.

Also which fields mean nothing on one machine.
Not among the rules: the same manifest may run elsewhere, or with a later release.
"""

from collections.abc import Iterator

from disttrain.job import object_uri
from disttrain.job.finding import Finding, Path
from disttrain.job.section import Section, is_on_a_cluster
from disttrain.job.spec import DistTrainJob, Spec
from disttrain.job.transport import TransportChoice

_CODE: Path = ("spec", "task", "source")
"""Here the code lies beside the manifest, so nothing is missed: one manifest serves both places."""


def on_one_machine(job: DistTrainJob) -> list[Finding]:
    return list(_anywhere(job.spec))


def on_a_cluster(job: DistTrainJob) -> list[Finding]:
    return [*_anywhere(job.spec), *_between_pods(job.spec)]


def _anywhere(spec: Spec) -> Iterator[Finding]:
    partitions = spec.replicas.partitions
    if partitions > 1:
        yield Finding(
            path=("spec", "replicas", "partitions"),
            message=f"model parallelism is not supported yet: must be 1, got {partitions}",
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
