"""Merging a user's pod template into ours, the way kubectl merges.

Mappings are merged, lists with a merge key by that key, other lists replaced; null takes away.
https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
"""

from collections.abc import Iterator
from typing import Any, Final

_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_LISTS: Final = (
    "volumes",
    "tolerations",
    "imagePullSecrets",
    "hostAliases",
    "topologySpreadConstraints",
    "resourceClaims",
    "schedulingGates",
)
_LISTS_OF_CONTAINER: Final = ("env", "envFrom", "volumeMounts", "volumeDevices", "ports")
_LARGEST_NAME: Final = 63

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
    "schedulingGates": "name",
}
"""As the API's types say it (patchMergeKey). Items are mappings, their keys text or numbers."""

_ONE_OF = {"volumes", "env"}
"""Lists whose items have one of several sources: another source replaces the one that was there."""


def merge(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Return ours with theirs merged in; neither is changed."""
    merged = dict(ours)
    for name, value in theirs.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _value(name, merged.get(name), value)
    return merged


def _value(name: str, ours: Any, theirs: Any) -> Any:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return merge(ours, theirs)
    if name in MERGE_KEYS and isinstance(ours, list) and isinstance(theirs, list):
        return _merge_lists(name, ours, theirs)
    return theirs


def _merge_lists(name: str, ours: list[Any], theirs: list[Any]) -> list[Any]:
    key = MERGE_KEYS[name]
    merged = list(ours)
    places = {item[key]: place for place, item in enumerate(ours)}
    for item in theirs:
        place = places.get(item.get(key)) if isinstance(item, dict) else None
        if place is None:
            merged.append(item)
        else:
            merged[place] = _item(name, merged[place], item)
    return merged


def _item(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    if name in _ONE_OF:
        ours = {part: value for part, value in ours.items() if part in theirs}
    return merge(ours, theirs)


def first_fault(template: dict[str, Any]) -> str | None:
    """The first thing that merging and our own fields cannot do with; None: there is none.

    The API server checks the rest; a template is anything until it has seen it.
    """
    return next(_wrong(template), None)


def _wrong(template: dict[str, Any]) -> Iterator[str]:
    metadata, spec = template.get("metadata"), template.get("spec")
    yield from _wrong_mapping(metadata, "metadata")
    yield from _wrong_mapping(spec, "spec")
    if isinstance(metadata, dict):
        for name in ("labels", "annotations"):
            yield from _wrong_texts(metadata.get(name), f"metadata.{name}")
    if isinstance(spec, dict):
        yield from _wrong_mapping(spec.get("securityContext"), "spec.securityContext")
        for name in (*_CONTAINERS, *_LISTS):
            yield from _wrong_list(name, spec.get(name), f"spec.{name}")
        for name in _CONTAINERS:
            yield from _wrong_containers(spec.get(name), f"spec.{name}")


def _wrong_containers(containers: Any, path: str) -> Iterator[str]:
    for place, container in enumerate(containers or []):
        inside = f"{path}[{place}]"
        for name in _LISTS_OF_CONTAINER:
            yield from _wrong_list(name, container.get(name), f"{inside}.{name}")
        for name in ("resources", "securityContext"):
            yield from _wrong_mapping(container.get(name), f"{inside}.{name}")
        for name in ("limits", "requests"):
            value = (container.get("resources") or {}).get(name)
            yield from _wrong_mapping(value, f"{inside}.resources.{name}")


def _wrong_list(name: str, value: Any, path: str) -> Iterator[str]:
    if value is not None and not isinstance(value, list):
        yield f"{path} must be a list, got {_shown(value)}"
        return
    for place, item in enumerate(value or []):
        if not isinstance(item, dict):
            yield f"{path}[{place}] must be a mapping, got {_shown(item)}"
            return
        key = MERGE_KEYS.get(name)
        if key is not None and not isinstance(item.get(key), str | int | None):
            yield f"{path}[{place}].{key} must be plain, got {_shown(item.get(key))}"


def _wrong_mapping(value: Any, path: str) -> Iterator[str]:
    if value is not None and not isinstance(value, dict):
        yield f"{path} must be a mapping, got {_shown(value)}"


def _wrong_texts(value: Any, path: str) -> Iterator[str]:
    yield from _wrong_mapping(value, path)
    for name, text in (value or {}).items():
        if not isinstance(text, str | None):
            yield f"{path}.{name} must be text, got {_shown(text)}"


def _shown(value: Any) -> str:
    return repr(value)[:_LARGEST_NAME]
