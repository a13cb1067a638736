"""What a user's pod template asks for beyond what everybody may. Pure."""

from collections.abc import Iterator
from typing import Any

from disttrain_operator.manifests.config import PodFeature

Found = tuple[PodFeature, str]
"""A feature, and the path in the template that asks for it."""

_HARMLESS_CAPABILITIES = {"NET_BIND_SERVICE"}
_POD_FIELDS = {
    "hostNetwork": PodFeature.HOST_NETWORK,
    "hostPID": PodFeature.PRIVILEGED,
    "hostIPC": PodFeature.PRIVILEGED,
    "serviceAccountName": PodFeature.SERVICE_ACCOUNT,
    "serviceAccount": PodFeature.SERVICE_ACCOUNT,
    "automountServiceAccountToken": PodFeature.SERVICE_ACCOUNT,
}


def asked(template: dict[str, Any]) -> list[Found]:
    """Everything that a template asks for and that needs the administrator's leave."""
    spec = _mapping(template.get("spec"))
    found: list[Found] = [
        (feature, f"spec.{name}") for name, feature in _POD_FIELDS.items() if spec.get(name)
    ]
    for place, volume in enumerate(_mappings(spec.get("volumes"))):
        found += _of_volume(volume, f"spec.volumes[{place}]")
    for kind in ("containers", "initContainers"):
        for place, container in enumerate(_mappings(spec.get(kind))):
            found += _of_container(container, f"spec.{kind}[{place}]")
    return found


def _of_volume(volume: dict[str, Any], path: str) -> Iterator[Found]:
    if volume.get("hostPath"):
        yield PodFeature.HOST_PATH, f"{path}.hostPath"
    projected = _mappings(_mapping(volume.get("projected")).get("sources"))
    if any(source.get("serviceAccountToken") for source in projected):
        yield PodFeature.SERVICE_ACCOUNT, f"{path}.projected"


def _of_container(container: dict[str, Any], path: str) -> Iterator[Found]:
    context = _mapping(container.get("securityContext"))
    for name in ("privileged", "allowPrivilegeEscalation"):
        if context.get(name):
            yield PodFeature.PRIVILEGED, f"{path}.securityContext.{name}"
    added = _mapping(context.get("capabilities")).get("add") or []
    if isinstance(added, list) and {str(each) for each in added} - _HARMLESS_CAPABILITIES:
        yield PodFeature.PRIVILEGED, f"{path}.securityContext.capabilities.add"
    if any(port.get("hostPort") for port in _mappings(container.get("ports"))):
        yield PodFeature.HOST_NETWORK, f"{path}.ports"


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> list[dict[str, Any]]:
    return [_mapping(item) for item in value] if isinstance(value, list) else []
