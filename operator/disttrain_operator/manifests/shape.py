"""Whether a pod template has the shape that merging and our own fields rely on. Pure.

The API server checks the rest; a template is anything until it has seen it.
"""

from collections.abc import Iterator
from typing import Any, Final

from disttrain_operator.manifests.template import MERGE_KEYS

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


def wrong(template: dict[str, Any]) -> str | None:
    """The first thing that is wrong with a template; None if nothing is."""
    return next(_wrong(template), None)


def _wrong(template: dict[str, Any]) -> Iterator[str]:
    metadata, spec = template.get("metadata"), template.get("spec")
    yield from _mapping(metadata, "metadata")
    yield from _mapping(spec, "spec")
    if isinstance(metadata, dict):
        for name in ("labels", "annotations"):
            yield from _texts(metadata.get(name), f"metadata.{name}")
    if isinstance(spec, dict):
        yield from _mapping(spec.get("securityContext"), "spec.securityContext")
        for name in (*_CONTAINERS, *_LISTS):
            yield from _list(name, spec.get(name), f"spec.{name}")
        for name in _CONTAINERS:
            yield from _containers(spec.get(name), f"spec.{name}")


def _containers(containers: Any, path: str) -> Iterator[str]:
    for place, container in enumerate(containers or []):
        inside = f"{path}[{place}]"
        for name in _LISTS_OF_CONTAINER:
            yield from _list(name, container.get(name), f"{inside}.{name}")
        for name in ("resources", "securityContext"):
            yield from _mapping(container.get(name), f"{inside}.{name}")
        for name in ("limits", "requests"):
            value = (container.get("resources") or {}).get(name)
            yield from _mapping(value, f"{inside}.resources.{name}")


def _list(name: str, value: Any, path: str) -> Iterator[str]:
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


def _mapping(value: Any, path: str) -> Iterator[str]:
    if value is not None and not isinstance(value, dict):
        yield f"{path} must be a mapping, got {_shown(value)}"


def _texts(value: Any, path: str) -> Iterator[str]:
    yield from _mapping(value, path)
    for name, text in (value or {}).items():
        if not isinstance(text, str | None):
            yield f"{path}.{name} must be text, got {_shown(text)}"


def _shown(value: Any) -> str:
    return repr(value)[:_LARGEST_NAME]
