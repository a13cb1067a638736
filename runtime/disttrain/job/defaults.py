"""What a manifest leaves open, derived from what it says, and the whole with all defaults. Pure."""

from pydantic import JsonValue
from pydantic.alias_generators import to_camel

from disttrain.job import document, length
from disttrain.job.length import Extent
from disttrain.job.section import Section
from disttrain.job.spec import Audit, DistTrainJob, Spec, Strategy
from disttrain.job.strategy_kind import Formats, Precision

EVALUATION_BATCHES = 4
"""Batches of training in one batch of evaluation: no gradients are kept, so more fit in memory."""

_DISK_SECONDS = 30.0
"""A disk may keep the coordinator for some time, and members work on without it: no hurry."""

_STORE_SECONDS = 120.0
"""The coordinator waits for an object store that is away: some requests of 20 s in a row."""


def audit(spec: Spec) -> Audit:
    """Return what is kept of the ledgers: all that a replay reads, if it is to read them."""
    return spec.audit or (Audit.FULL if spec.record else Audit.SUMMARY)


def samples_per_step(spec: Spec) -> int:
    """Return the samples that a replica computes at once: a batch, for sandblaster a portion."""
    return spec.strategy.rule.samples_per_step(spec.batch_size)


def extent(spec: Spec, train_samples: int | None) -> Extent:
    """Return how long a run is; None or 0: nobody knows yet how much data there is."""
    return length.extent(spec.stop, samples_per_step(spec), train_samples or None)


def problem_in(job: Spec, stage: Spec, run: Extent) -> str | None:
    """Return what of a stage of a job does not fit into a run, with its place in `spec.strategy`.

    None: nothing, as far as the run is known.
    """
    strategy = job.strategy.rule
    first = None if stage is job else strategy.first_stage
    problem = (first or strategy).problem_in(run)
    return problem and f"{to_camel(strategy.name)}.{problem}"


def problem_with_data(job: Spec, stage: Spec, train_samples: int) -> str | None:
    """Return what of a stage of a job does not fit to so much data; None: all does."""
    problem = problem_in(job, stage, extent(stage, train_samples))
    if problem is None:
        return None
    return f"spec.strategy.{problem}; the training data has {train_samples} samples"


def precision(spec: Spec) -> Precision:
    return spec.strategy.rule.computes_in


def formats(spec: Spec) -> Formats:
    return spec.strategy.rule.formats


def autocasts(spec: Spec) -> bool:
    return spec.strategy.rule.autocasts


def evaluation_batch_size(spec: Spec) -> int:
    given = spec.evaluation.batch_size if spec.evaluation else None
    return given or EVALUATION_BATCHES * samples_per_step(spec)


def first_stage(spec: Spec) -> Spec:
    """Return what a job begins with: the warm start of a batch method as a job of its own.

    That ends by `stop.samples`. Without a warm start it is the whole job.
    """
    first = spec.strategy.rule.first_stage
    if first is None:
        return spec
    stage = {
        "strategy": Strategy(**{first.rule.name: first.rule}),
        "batch_size": first.batch_size,
        "stop": spec.stop.model_copy(update={"samples": first.samples, "iterations": None}),
    }
    return spec.model_copy(update=stage)


def stages(spec: Spec) -> tuple[Spec, ...]:
    """Return what is done one after another, each as a job of its own; the last is the job."""
    first = first_stage(spec)
    return (spec,) if first is spec else (first, spec)


def coordinator_patience_seconds(spec: Spec) -> float:
    """Return for how long the coordinator may do one thing before it counts as hanging."""
    least = _STORE_SECONDS if spec.checkpoint.is_object_store else _DISK_SECONDS
    return max(spec.coordinator.member_timeout_seconds, least)


_HEAD = """\
# This run's manifest, with every default spelled out. `disttrain resume` follows it.
"""


def written_out(job: DistTrainJob) -> dict[str, JsonValue]:
    """Return the manifest as processes get it, with name, namespace and uid as its only metadata.

    Labels and annotations change while a job runs, and its processes do not read them. An image of
    before knows no fields that are newer, so those that are not given are left out.
    """
    written = _said(job)
    kept = {"name", "namespace", "uid"}
    return {**written, "metadata": job.metadata.model_dump(by_alias=True, include=kept)}


def written_out_text(job: DistTrainJob) -> str:
    """Return it as YAML, as a run keeps it, without fields that are null unless one says otherwise.

    Where null is somebody's choice it is written: `evaluation: null`, or in a task's arguments.
    """
    return _HEAD + document.write(_said(job))


def _said(job: DistTrainJob) -> dict[str, JsonValue]:
    return _given(job, job.model_dump(mode="json", by_alias=True))


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
