"""A job's spec, parsed, and the objects that follow from it. Pure; the latest are remembered."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pydantic import JsonValue, ValidationError

from disttrain.job import document, support, validation
from disttrain.job.finding import Severity
from disttrain.job.names import Role
from disttrain.job.spec import DistTrainJob, Spec
from disttrain_operator import json_text, untrusted
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests import access, launch_secret, pod_security, stored, volume
from disttrain_operator.manifests.children import children
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.manifests.context import Context, Object, Scale
from disttrain_operator.manifests.pod import pod_template, theirs
from disttrain_operator.manifests.stored import Objects
from disttrain_operator.manifests.template import first_fault as template_fault
from disttrain_operator.observed.records import JobKey, JobRecord
from disttrain_operator.policies.problem import Problem, ProblemType

Key = TypeVar("Key")
Value = TypeVar("Value")

_CACHED_BYTES = 32 * 2**20
"""Of parsed specs, and as much of the objects that are made from them."""

_PARSED_PER_BYTE = 16
"""Bytes of memory that a byte of a spec takes once it is parsed, about; and as objects."""

_UNPACKED_PER_BYTE = 64
"""Bytes of memory that a byte of packed objects takes, about."""

_NAMED = 16384
"""Texts of which it is kept whether they can be read, in a few bytes each."""

_MOST_TOLD = 5
"""Things that are wrong with a template which one condition names."""

_Key = tuple[JobKey, str, bytes, ManifestConfig]
"""What a job's wishes follow from, in a few bytes: place, uid, digest of the spec, settings."""

_ROLES = ("coordinator", "parameterServer", "replicas")
_WHOLE = Scale(shards=0, replicas=0, coordinator=True)
"""Any: it does not count."""


_STANDS_IN: Final[dict[str, Any]] = {
    "task": {"entrypoint": "unknown:Unknown"},
    "strategy": {"downpour": {"optimizer": {"sgd": {"learningRate": 0.1}}}},
    "batchSize": 1,
    "stop": {"epochs": 1},
    "parameterServer": {},
    "replicas": {"count": 1},
}
"""For what must be given and decides nothing here."""

_COUNTS: Final = (
    ("strategy",),
    ("parameterServer", "shards"),
    ("replicas", "count"),
    ("replicas", "partitions"),
    ("replicas", "grid"),
    ("replicas", "ranks"),
    ("suspend",),
    ("activeDeadlineSeconds",),
    ("pendingDeadlineSeconds",),
    ("ttlSecondsAfterFinished",),
    ("managedBy",),
    ("failurePolicy", "maxRestarts"),
    ("failurePolicy", "rules"),
)
"""Each is taken if it is valid by itself."""


class LruCache(Generic[Key, Value]):
    """The values that were asked for last, of at most so many bytes, or whatever sizes count.

    Not for several threads.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._kept: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Key, size: int, make: Callable[[], Value]) -> Value:
        """The value of a key; made, and kept with a size, where it is not there."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found[0]
        value = make()
        if size <= self._largest:
            self._kept[key] = value, size
            self._size += size
            self._forget()
        return value

    def _forget(self) -> None:
        while self._size > self._largest:
            _, (_, size) = self._kept.popitem(last=False)
            self._size -= size


@dataclass(frozen=True, slots=True)
class Desired:
    """What a job wants, or why it cannot be had."""

    context: Context | None
    """None: the manifest is not valid."""
    spec: Spec
    """Of one that is not valid what counts all the same."""
    problems: tuple[Problem, ...]
    templates: bool
    """Whether the user has a say in the pods, so that they may be wrong."""
    digest: str = ""
    """What tells the user's pod templates from others. Defaults of the CRD are not in it: another
    CRD is nobody's wish for other pods."""
    warnings: tuple[str, ...] = ()
    """What the user should know of a manifest that is valid."""


def of(job: JobRecord, config: ManifestConfig) -> Desired:
    """What the job wants; the scale of its workloads is not in it."""
    size = len(job.spec) * _PARSED_PER_BYTE
    return _wanted.get(_key(job, config), size, lambda: _parsed(job, config))


def rendered(job: JobRecord, config: ManifestConfig) -> str:
    """The job's objects as this operator makes them, packed; empty if its manifest is not valid."""
    return _packed.get(_key(job, config), len(job.spec), lambda: _render(job, config))


def objects(text: str, context: Context) -> Objects | None:
    """The objects that a text holds; None if it is not one that an operator wrote for the job."""
    found = unpacked(text)
    return None if found is None or stored.is_strange(found, context) else found


def unpacked(text: str) -> Objects | None:
    """The objects that a text holds, whosever they are; None if no operator wrote it."""
    size = len(text) * _UNPACKED_PER_BYTE
    return _unpacked.get(_digest(text), size, lambda: stored.unpack(text))


def is_readable(text: str) -> bool:
    return bool(_readable.get(_digest(text), 1, lambda: stored.unpack(text) is not None))


def refused(template: Object, role: Role, config: ManifestConfig) -> Problem | None:
    """What in a role's pods is beyond what the administrator allows, or no pod template at all."""
    if wrong := template_fault(template):
        return Problem(ProblemType.INVALID_TEMPLATE, f"the {role}'s template: {wrong}")
    if found := access.violations(template, role, config):
        return _not_allowed(f"the {role}'s template", found)
    level = config.pod_security
    beyond = pod_security.violations(template, level)
    return _not_allowed(f"the {role}'s pods at the level {level}", beyond) if beyond else None


_wanted: LruCache[_Key, Desired] = LruCache(_CACHED_BYTES)
_packed: LruCache[_Key, str] = LruCache(_CACHED_BYTES)
_unpacked: LruCache[bytes, Objects | None] = LruCache(_CACHED_BYTES)
_readable: LruCache[bytes, bool] = LruCache(_NAMED)


def _key(job: JobRecord, config: ManifestConfig) -> _Key:
    return job.key, job.uid, _digest(job.spec), config


def _parsed(job: JobRecord, config: ManifestConfig) -> Desired:
    spec = json_text.read(job.spec)
    wrong = spec if isinstance(spec, str) else document.exceeded(spec)
    if wrong is not None:
        return _invalid(spec, f"spec: {wrong}")
    metadata: JsonValue = {**job.key._asdict(), "uid": job.uid}
    manifest: JsonValue = {**Kind.DistTrainJob.header, "metadata": metadata, "spec": spec}
    found = validation.validate(manifest)
    if found.job is None:
        errors = [each for each in found.findings if each.severity is Severity.ERROR]
        return _invalid(spec, "; ".join(str(each) for each in errors))
    warnings = tuple(str(each) for each in found.findings)
    context = Context(job.key.name, job.key.namespace, job.uid, found.job, config)
    templates = [(spec.get(role) or {}).get("template") for role in _ROLES]
    return Desired(
        context,
        found.job.spec,
        problems=tuple(_problems(context)),
        templates=any(theirs(context, role) for role in Role),
        digest=stored.digest(templates),
        warnings=warnings,
    )


def _render(job: JobRecord, config: ManifestConfig) -> str:
    context = of(job, config).context
    if context is None:
        return ""
    made = tuple(children(context, _WHOLE))
    return stored.pack(Objects(made, launch_secret.launch_file(context)))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _invalid(given: object, message: str) -> Desired:
    spec, problem = (
        _what_counts(untrusted.mapping(given)),
        Problem(ProblemType.INVALID_MANIFEST, message),
    )
    return Desired(None, spec, (problem,), templates=False)


def _problems(context: Context) -> list[Problem]:
    found = [_unsupported(context.job), *(_wrong_template(context, role) for role in Role)]
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


def _wrong_template(context: Context, role: Role) -> Problem | None:
    if wrong := template_fault(theirs(context, role)):
        return Problem(ProblemType.INVALID_TEMPLATE, f"the {role}'s template: {wrong}")
    return refused(pod_template(context, role), role, context.config)


def _not_allowed(what: str, found: list[str]) -> Problem:
    message = (
        f"{what}: {'; '.join(found[:_MOST_TOLD])}; change the template, or let the "
        "administrator change podSecurity or allowedServiceAccounts of the operator's chart"
    )
    return Problem(ProblemType.INVALID_TEMPLATE, message, "NotAllowed")


def _what_counts(given: dict[str, Any]) -> Spec:
    """What still counts of a manifest that the rules refuse: scale, stop and end of its job.

    A job may run by a manifest that an older operator accepted. Nothing is made for it any more,
    but it is looked after until its end. What cannot be read has its default.
    """
    wanted = _STANDS_IN
    for path in _COUNTS:
        candidate = _with(wanted, given, path)
        if candidate is not None and _is_valid(candidate):
            wanted = candidate
    return Spec.model_validate(wanted, by_alias=True, by_name=False)


def _with(
    wanted: dict[str, Any], given: dict[str, Any], path: tuple[str, ...]
) -> dict[str, Any] | None:
    """What is wanted with one value as it is given; None if it is not given."""
    name, *inner = path
    if name not in given:
        return None
    if not inner:
        return {**wanted, name: given[name]}
    below = _with(untrusted.mapping(wanted, name), untrusted.mapping(given, name), tuple(inner))
    return None if below is None else {**wanted, name: below}


def _is_valid(candidate: dict[str, Any]) -> bool:
    try:
        Spec.model_validate(candidate, by_alias=True, by_name=False)
    except ValidationError:
        return False
    return True
