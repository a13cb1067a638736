"""What a person gives to `submit`, as the object that is sent. Pure but for a name by chance.

Only fields that were given are sent: the API server fills in the rest, and an autoscaler may own
what nobody wrote.
"""

import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from disttrain.cluster.errors import WrongInput
from disttrain.cluster.interface import Object
from disttrain.job import document, parsing, rules, support, validation
from disttrain.job.finding import InvalidManifest, located_lines
from disttrain.job.spec import DistTrainJob

_LETTERS: Final = string.ascii_lowercase + string.digits
SUFFIX_LENGTH: Final = 5


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job to be made, as a person described it."""

    job: DistTrainJob
    warnings: tuple[str, ...] = ()
    """One line for each."""

    @property
    def name(self) -> str:
        return self.job.metadata.name

    @property
    def source(self) -> str | None:
        """The ConfigMap that its code comes from, or None: from the image."""
        source = self.job.spec.task.source
        return None if source is None else source.config_map

    def manifest(self, namespace: str, code: str | None) -> Object:
        """The object for the API server; `code` names the ConfigMap if there is one."""
        given: Object = self.job.model_dump(mode="json", by_alias=True, exclude_unset=True)
        given["metadata"].pop("uid", None)
        given["metadata"]["namespace"] = namespace
        if code is not None:
            given["spec"]["task"]["source"] = {"configMap": code}
        return given


def parse(text: str, source: str, assignments: Sequence[str] = (), suffix: str = "") -> JobRequest:
    """The job of a manifest, whose metadata may give a generateName instead of a name.

    Raises InvalidManifest with everything that is wrong, also for what no cluster can do yet.
    """
    documents = document.read(text)
    name = _completed(documents[0].value, suffix or random_suffix()) if documents else None
    named = [f"metadata.name={name}"] if name else []
    accepted = parsing.parse_accepted(text, source=source, assignments=[*named, *assignments])
    return _accepted(accepted.job, source, accepted.warnings)


def of_value(value: dict[str, JsonValue], source: str, suffix: str = "") -> JobRequest:
    name = _completed(value, suffix or random_suffix())
    metadata = value.get("metadata")
    named = {**metadata, "name": name} if name and isinstance(metadata, dict) else metadata
    outcome = validation.validate({**value, "metadata": named})
    if outcome.job is None:
        raise InvalidManifest(source, outcome.findings)
    return _accepted(outcome.job, source, located_lines(outcome.findings, source))


def of_job(job: DistTrainJob, source: str) -> JobRequest:
    return _accepted(job, source, located_lines(rules.check(job), source))


def namespace(request: JobRequest, wanted: str | None, default: str) -> str:
    """Where the job goes. Raises WrongInput if the manifest and the person disagree."""
    written = request.job.metadata.namespace
    if written and wanted and written != wanted:
        raise WrongInput(
            f"the manifest says metadata.namespace {written}, and --namespace {wanted}; "
            "drop one of them"
        )
    return wanted or written or default


def random_suffix() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(SUFFIX_LENGTH))


def _accepted(job: DistTrainJob, source: str, warnings: tuple[str, ...]) -> JobRequest:
    refused = support.on_a_cluster(job)
    if refused:
        raise InvalidManifest(source, refused)
    return JobRequest(job, warnings)


def _completed(value: JsonValue, suffix: str) -> str | None:
    metadata = value.get("metadata") if isinstance(value, dict) else None
    if not isinstance(metadata, dict) or metadata.get("name") is not None:
        return None
    start = metadata.get("generateName")
    return start + suffix if isinstance(start, str) else None
