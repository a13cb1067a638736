"""Fields of a manifest that mean nothing to a job on one machine. Pure."""

from collections.abc import Iterator

from disttrain.job import cluster_field
from disttrain.job.finding import Path
from disttrain.job.section import Section
from disttrain.job.spec import DistTrainJob

_CODE: Path = ("spec", "task", "source")
"""Here the code lies beside the manifest, so nothing is missed: one manifest serves both places."""


def without_meaning(job: DistTrainJob) -> list[Path]:
    """Return the paths that are given, other than their defaults, and are missed here."""
    return [path for path in _without_meaning(job, ()) if path != _CODE]


def _without_meaning(section: Section, around: Path) -> Iterator[Path]:
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        path = (*around, field.alias or name)
        if cluster_field.is_on_a_cluster(field) and value != field.default:
            yield path
        elif isinstance(value, Section):
            yield from _without_meaning(value, path)
