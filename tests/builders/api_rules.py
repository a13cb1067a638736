"""What an API server refuses, and what becomes of fields: as `api_contract` asks for it. Pure."""

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from disttrain_operator.errors import Conflict, Refused
from disttrain_operator.kinds import WORKLOADS, Kind

Object = dict[str, Any]
Path = tuple[str, ...]

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_OF_PODS: Final = {"replicas", "selector", "template", "minReadySeconds"}
_FIELDS: Final = {
    Kind.StatefulSet: _OF_PODS
    | {"serviceName", "podManagementPolicy", "updateStrategy", "volumeClaimTemplates", "ordinals"}
    | {"persistentVolumeClaimRetentionPolicy", "revisionHistoryLimit"},
    Kind.ReplicaSet: _OF_PODS,
    Kind.Job: {"parallelism", "completions", "activeDeadlineSeconds", "podFailurePolicy"}
    | {"successPolicy", "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes", "selector"}
    | {"manualSelector", "template", "ttlSecondsAfterFinished", "completionMode", "suspend"}
    | {"podReplacementPolicy", "managedBy"},
}
"""Of the spec of workloads; of other kinds every field is taken."""
_FIXED: Final = {
    Kind.StatefulSet: {"serviceName", "selector", "podManagementPolicy", "volumeClaimTemplates"},
    Kind.ReplicaSet: {"selector"},
    Kind.Job: {"selector", "template", "completions", "completionMode"},
}
"""What must not change."""


@dataclass(slots=True)
class Owned:
    """Who wrote which fields of an object, as far as our field manager did."""

    applied: set[Path] = field(default_factory=set)
    updated: set[Path] = field(default_factory=set)
    """Created or merged: the same manager, but not an apply."""


def check_new(kind: Kind, body: Object) -> None:
    """Raise Refused for an object that cannot be."""
    name = str(body["metadata"].get("name"))
    if not _NAME.fullmatch(name):
        message = f"{kind.name} is invalid: metadata.name: Invalid value: {name!r}"
        raise Refused(message)
    if kind not in WORKLOADS or "spec" not in body:
        return
    spec = body["spec"]
    for unknown in sorted(spec.keys() - _FIELDS[kind]):
        message = f'strict decoding error: unknown field "spec.{unknown}"'
        raise Refused(message)
    selected = spec.get("selector", {}).get("matchLabels", {})
    labels = spec.get("template", {}).get("metadata", {}).get("labels", {})
    if not selected.items() <= labels.items():
        message = f"{kind.name} is invalid: `selector` does not match template `labels`"
        raise Refused(message)


def check_change(kind: Kind, old: Object, new: Object) -> None:
    """Raise Refused for a change that must not be."""
    if old.get("immutable") and old.get("data") != new.get("data"):
        message = f"{kind.name} is invalid: data: field is immutable when `immutable` is set"
        raise Refused(message)
    before, after = old.get("spec", {}), new.get("spec", {})
    for name in sorted(_FIXED.get(kind, ())):
        if before.get(name) != after.get(name):
            message = f"{kind.name} is invalid: spec.{name}: Forbidden: field is immutable"
            raise Refused(message)


def check_same(key: object, found: Object, patch: Object) -> None:
    """Raise Conflict if a patch names the uid of another object, or another version of it."""
    for name in ("uid", "resourceVersion"):
        if patch.get("metadata", {}).get(name) not in {None, found["metadata"][name]}:
            message = f"{key} has another {name}"
            raise Conflict(message)


def without_nulls(value: Any) -> Any:
    """The value as it is kept: a null says nothing."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def merged(found: Object, patch: Object) -> Object:
    """What a merge makes of an object: a null takes away, a list replaces a list."""
    result = dict(found)
    for name, value in patch.items():
        old = result.get(name)
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merged(old if isinstance(old, dict) else {}, value)
        else:
            result[name] = copy.deepcopy(value)
    return result


def applied(found: Object, body: Object, owned: Owned) -> Object:
    """What an apply makes of an object; what only earlier ones wrote and it leaves out goes."""
    named = dict(leaves(body))
    result = merged(found, body)
    for path in owned.applied - named.keys() - owned.updated:
        _take_away(result, path)
    values = dict(leaves(found))
    owned.updated -= {path for path, value in named.items() if values.get(path) != value}
    owned.applied = set(named)
    return result


def note_update(found: Object, new: Object, owned: Owned) -> None:
    """Note which fields a creation or a merge wrote."""
    before = dict(leaves(found))
    changed = {path for path, value in leaves(new) if before.get(path) != value}
    owned.updated |= changed
    owned.applied -= changed


def leaves(body: Object, above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The fields of an object and their values, but for what the server itself writes."""
    for name, value in body.items():
        path = (*above, name)
        if path in _SERVERS or name == "status":
            continue
        if isinstance(value, dict) and value:
            yield from leaves(value, path)
        else:
            yield path, value


_SERVERS: Final = {
    ("metadata", name)
    for name in ("uid", "resourceVersion", "generation", "creationTimestamp", "name", "namespace")
} | {("apiVersion",), ("kind",)}


def _take_away(body: Object, path: Path) -> None:
    *above, last = path
    for name in above:
        body = body.get(name, {})
    body.pop(last, None)
