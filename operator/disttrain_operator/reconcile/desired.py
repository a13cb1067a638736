"""A job's spec, parsed, and the objects that follow from it. Pure; the latest are remembered."""

from dataclasses import dataclass
from functools import lru_cache

from disttrain.job import support, validation
from disttrain.job.finding import Severity
from disttrain.job.names import Role
from disttrain.job.spec import DistTrainJob
from disttrain_operator import json_text
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests import features, volume
from disttrain_operator.manifests.children import Child, Expected, at_scale, children
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.manifests.context import Context, Scale
from disttrain_operator.manifests.pod import given
from disttrain_operator.observed import parsing
from disttrain_operator.observed.records import JobRecord
from disttrain_operator.policies.problem import Problem, ProblemType

_PARSED = 256
"""Jobs of which the parsed spec is kept: parsing again takes a tenth of a millisecond."""

_MADE = 32
"""Jobs that are being made: what they expect, and then are given, is made once."""

_EXPECTED = 16384
"""Jobs of which it is kept what they shall have: 1 KB each, and a millisecond to find out."""

_WHOLE = Scale(shards=0, replicas=0, coordinator=True)
"""Fingerprints do not depend on the scale."""


@dataclass(frozen=True, slots=True)
class Desired:
    """What a job wants, or why it cannot be had."""

    context: Context | None
    """None: the manifest is not valid."""
    problems: tuple[Problem, ...]
    templates: bool
    """Whether the user has a say in the pods, so that they may be wrong."""
    warnings: tuple[str, ...] = ()
    """What the user should know of a manifest that is valid."""


def of(job: JobRecord, config: ManifestConfig) -> Desired:
    """What the job wants; the scale of its workloads is not in it."""
    return _of(*_about(job), config)


def _about(job: JobRecord) -> tuple[str, str, str, str]:
    return job.key.namespace, job.key.name, job.uid, job.spec


def expected(job: JobRecord, config: ManifestConfig) -> tuple[Expected, ...]:
    """What the job shall have, whatever its scale; nothing if its manifest is not valid."""
    return _expected(*_about(job), config)


def scaled(job: JobRecord, config: ManifestConfig, scale: Scale) -> tuple[Child, ...]:
    """All children at a scale."""
    return tuple(at_scale(child, scale) for child in _made(*_about(job), config))


@lru_cache(maxsize=_PARSED)
def _of(namespace: str, name: str, uid: str, spec: str, config: ManifestConfig) -> Desired:
    header = {"apiVersion": Kind.DistTrainJob.value.api_version, "kind": Kind.DistTrainJob.name}
    metadata = {"namespace": namespace, "name": name, "uid": uid}
    manifest = {**header, "metadata": metadata, "spec": json_text.read(spec)}
    found = validation.validate(manifest)
    if found.job is None:
        errors = [each for each in found.findings if each.severity is Severity.ERROR]
        message = "; ".join(str(each) for each in errors)
        return Desired(None, (Problem(ProblemType.INVALID_MANIFEST, message),), templates=False)
    warnings = tuple(str(each) for each in found.findings)
    return _of_valid(Context(name, namespace, uid, found.job, config), warnings)


@lru_cache(maxsize=_EXPECTED)
def _expected(
    namespace: str, name: str, uid: str, spec: str, config: ManifestConfig
) -> tuple[Expected, ...]:
    made = _made(namespace, name, uid, spec, config)
    return tuple(
        Expected(child.kind, parsing.kept(child.name), parsing.kept(child.fingerprint))
        for child in made
    )


@lru_cache(maxsize=_MADE)
def _made(
    namespace: str, name: str, uid: str, spec: str, config: ManifestConfig
) -> tuple[Child, ...]:
    context = _of(namespace, name, uid, spec, config).context
    return () if context is None else tuple(children(context, _WHOLE))


def _of_valid(context: Context, warnings: tuple[str, ...]) -> Desired:
    problems = tuple(_problems(context))
    templates = any(given(context, role) is not None for role in Role)
    return Desired(context, problems, templates, warnings)


def _problems(context: Context) -> list[Problem]:
    found = [_unsupported(context.job), *(_not_allowed(context, role) for role in Role)]
    if volume.is_missing(context):
        message = (
            "set spec.checkpoint.volume, or spec.checkpoint.uri to a place in an object store: "
            "this cluster has no default for it"
        )
        found.append(Problem(ProblemType.NO_VOLUME, message))
    return [problem for problem in found if problem is not None]


def _unsupported(job: DistTrainJob) -> Problem | None:
    findings = support.on_a_cluster(job)
    if not findings:
        return None
    return Problem(ProblemType.NOT_SUPPORTED, "; ".join(str(each) for each in findings))


def _not_allowed(context: Context, role: Role) -> Problem | None:
    template = given(context, role)
    asked = features.asked({"spec": template.spec}) if template else []
    refused = [each for each in asked if each[0] not in context.config.allowed_features]
    if not refused:
        return None
    feature, path = refused[0]
    message = (
        f"the {role}'s template asks for {path}, which needs the pod feature {feature}; take it "
        "away, or let the administrator add it to allowedPodFeatures of the operator's chart"
    )
    return Problem(ProblemType.INVALID_TEMPLATE, message, "PodFeatureNotAllowed")
