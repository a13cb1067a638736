"""The manifest with every default written out: as processes get it, and as a run keeps it. Pure."""

from pydantic import JsonValue

from disttrain.job import document
from disttrain.job.section import Section
from disttrain.job.spec import DistTrainJob

_HEAD = """\
# This run's manifest, with every default spelled out. `disttrain resume` follows it.
"""


def manifest(job: DistTrainJob) -> dict[str, JsonValue]:
    """Return the manifest with the job's name, namespace and uid as its only metadata.

    Labels and annotations change while a job runs, and its processes do not read them.
    """
    written: dict[str, JsonValue] = job.model_dump(mode="json", by_alias=True)
    kept = {"name", "namespace", "uid"}
    return {**written, "metadata": job.metadata.model_dump(by_alias=True, include=kept)}


def text(job: DistTrainJob) -> str:
    """Return the manifest as YAML, without fields that are null unless one says otherwise.

    Where null is somebody's choice it is written: `evaluation: null`, or in a task's arguments.
    """
    return _HEAD + document.write(_given(job, job.model_dump(mode="json", by_alias=True)))


def _given(section: Section, dumped: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """`dumped`, which is the section's, without what is not given."""
    given: dict[str, JsonValue] = {}
    for name, field in type(section).model_fields.items():
        alias, value = field.alias or name, getattr(section, name)
        if alias not in dumped or (value is None and field.get_default() is None):
            continue
        within = dumped[alias]
        if isinstance(value, Section) and isinstance(within, dict):
            within = _given(value, within)
        given[alias] = within
    return given
