"""Manifest text to a DistTrainJob. Pure; `manifest_file` reads files."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from disttrain.job import document, overrides, validation
from disttrain.job.document import Document
from disttrain.job.finding import Finding, InvalidManifest, located_lines
from disttrain.job.overrides import Overridden
from disttrain.job.spec import DistTrainJob
from disttrain.job.validation import Outcome


@dataclass(frozen=True, slots=True)
class Accepted:
    """A job that may run, and one line for each of its warnings."""

    job: DistTrainJob
    warnings: tuple[str, ...]


def parse_job(
    text: str, *, source: str = "job.yaml", assignments: Sequence[str] = ()
) -> DistTrainJob:
    """Return the one job of a text, after assignments such as `spec.replicas.count=4`.

    Raises InvalidManifest with everything that is wrong. `source` is the name of the file in
    messages.
    """
    return parse_accepted(text, source=source, assignments=assignments).job


def parse_accepted(
    text: str, *, source: str = "job.yaml", assignments: Sequence[str] = ()
) -> Accepted:
    """Return what `parse_job` does, with the warnings."""
    documents = document.read(text)
    if len(documents) > 1 and not any(each.findings for each in documents):
        second = documents[1].lines[()]
        message = f"must hold one job, got {len(documents)} YAML documents; split the file"
        raise InvalidManifest(source, [Finding(path=(), message=message, line=second)])
    parsed = _parse(documents[0], assignments) if documents else _EMPTY
    if parsed.job is None:
        raise InvalidManifest(source, parsed.findings)
    return Accepted(parsed.job, located_lines(parsed.findings, source))


def parse_jobs(text: str) -> list[Outcome]:
    """Return every document of a text that may hold several jobs; nothing is raised."""
    return [_parse(each, ()) for each in document.read(text)] or [_EMPTY]


def _parse(read: Document, assignments: Sequence[str]) -> Outcome:
    if read.value is None:
        return Outcome(None, tuple(read.findings))
    changed = overrides.apply(read.value, assignments)
    outcome = validation.validate(changed.value, [*read.findings, *changed.findings])
    located = (_located(finding, read, changed) for finding in outcome.findings)
    return Outcome(outcome.job, tuple(sorted(located, key=_order)))


_EMPTY = Outcome(None, (Finding(path=(), message="the file is empty; a job was expected"),))


def _located(finding: Finding, read: Document, changed: Overridden) -> Finding:
    is_set = any(finding.path[: len(path)] == path for path in changed.paths)
    if is_set or finding in changed.findings:
        return replace(finding, message=f"{finding.message} (given by --set)")
    return replace(finding, line=finding.line or read.line_of(finding.path))


def _order(finding: Finding) -> int:
    return finding.line or 0
