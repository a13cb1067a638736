"""Merging a user's pod template into ours, the way kubectl merges.

Mappings are merged, lists with a merge key by that key, other lists replaced; null takes away.
https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
"""

from typing import Any

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
